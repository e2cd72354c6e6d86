"""How far the run is: a live line on a terminal, plain lines elsewhere.

The plain lines, each with its time, are in `<model_dir>/train.log` as well,
unless that is an object store, which cannot append.
"""

import os
import sys
import time
from collections.abc import Mapping

import keras
import tensorflow as tf
import tqdm

from training import files
from training.callbacks import Context

# (in full, in short); what matters most comes first.
Words = list[tuple[str, str]]

_COLUMNS = 79  # of a terminal that does not know


def make(context: Context) -> keras.callbacks.Callback:
    """Returns the callback; it is silent on workers that are not chief."""
    return (
        _Progress(context) if context.is_chief else keras.callbacks.Callback()
    )


class _Progress(keras.callbacks.Callback):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context
        self._step = context.start_step
        self._evaluation: Words = []
        self._bar = _make_bar(context)

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        self._step = batch
        results, speed = _results(logs), _speed(self._context, batch, logs)
        done = f"{batch}/{self._context.train_steps}"
        line = f"step {done}: {_in_full(results + speed)}"
        self._log(line)
        if not self._bar:
            print(line, flush=True)
            return
        words = results + self._evaluation + speed
        self._bar.set_description_str(_fit(done, words, _columns()))

    def on_test_end(self, logs: dict[str, float]) -> None:
        results = _results(logs)
        # The live line has room for one number.
        name = "accuracy" if "accuracy" in logs else "loss"
        self._evaluation = [
            (f"evaluation {full}", f"eval {short.partition(' ')[2]}")
            for full, short in results
            if full.startswith(name)
        ]
        line = f"step {self._step}: evaluation {_in_full(results)}"
        self._log(line)
        if self._bar:
            self._bar.write(line[: _columns()], file=sys.stdout)
        else:
            print(line, flush=True)

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        if self._bar:
            self._bar.close()

    def _log(self, line: str) -> None:
        folder = self._context.model_dir
        if files.is_object_store(folder):
            return
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        path = tf.io.gfile.join(folder, "train.log")
        what = f"step {self._step}: {path} could not be written"
        with files.explained(what, "continue"), open(path, "a") as file:
            file.write(f"{stamp} {line}\n")


def _make_bar(context: Context) -> tqdm.tqdm | None:
    """Returns what rewrites its line in place, if stdout is a terminal."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    size = os.get_terminal_size(sys.stdout.fileno())
    # Only our own words: its own do not shrink to a narrow terminal.
    return tqdm.tqdm(
        total=context.train_steps,
        bar_format="{desc}",
        # It writes nothing where a terminal does not know its size: 0.
        dynamic_ncols=all(size),
        ncols=_COLUMNS,
        nrows=20,
        leave=False,
        file=sys.stdout,
    )


def _columns() -> int:
    """Returns how many characters fit, now: a terminal may be resized."""
    columns = os.get_terminal_size(sys.stdout.fileno()).columns
    # Some terminals wrap once the last column is written.
    return columns - 1 if columns else _COLUMNS


def _results(logs: Mapping[str, float]) -> Words:
    """Returns `loss 0.0512`, `accuracy 0.9830`.

    A layer that iterates reports the share of examples that have converged;
    it is only shown if some have not.
    """
    words = []
    if "loss" in logs:
        loss = logs["loss"]
        words.append((f"loss {loss:,.4f}", f"loss {loss:.3g}"))
    if "accuracy" in logs:
        accuracy = logs["accuracy"]
        words.append((f"accuracy {accuracy:.4f}", f"acc {accuracy:.3f}"))
    for name, value in logs.items():
        layer, found, _ = name.rpartition("_converged")
        if found and not value >= 1:
            text = f"not converged for {1 - value:.1%}"
            words.append((f"{layer} has {text}", text))
    return words


def _speed(context: Context, step: int, logs: Mapping[str, float]) -> Words:
    """Returns how long it will take, how much is done, and how fast."""
    steps, examples = logs["steps_per_sec"], logs["examples_per_sec"]
    words = []
    if steps > 0:  # else it was interrupted before the first
        left = _clock((context.train_steps - step) / steps)
        words.append((f"{left} to go", f"ETA {left}"))
    if context.steps_per_epoch:
        epochs = step / context.steps_per_epoch
        epoch = f"{epochs:.1f}" if epochs >= 1 else f"{epochs:.2g}"
        words.append((f"epoch {epoch}", f"ep {epoch}"))
    words += [
        (f"{examples:,.0f} examples/s", f"{_compact(examples)} ex/s"),
        (f"{steps:,.1f} steps/s", f"{_compact(steps)} st/s"),
    ]
    for name, short in (("mfu", "MFU"), ("goodput", "goodput")):
        if name in logs:
            words.append((f"{short} {logs[name]:.1%}",) * 2)
    return words


def _in_full(words: Words) -> str:
    return ", ".join(full for full, _ in words)


def _fit(done: str, words: Words, columns: int) -> str:
    """Says it all in `columns` characters: in short, or less of it."""
    line = f"step {done}: {_in_full(words)}"
    parts = [done, *(short for _, short in words)]
    while len(line) > columns and parts:
        line = " ".join(parts)
        parts.pop()
    return line


def _clock(seconds: float) -> str:
    """Returns `1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"


def _compact(number: float) -> str:
    """Returns three digits and a letter: `11.2k`."""
    for unit in ("", "k", "M"):
        if number < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}G"
