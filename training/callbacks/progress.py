"""How far the run is: a bar on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Mapping

import keras
import tqdm

from training.callbacks import Context

_SHOWN = ("loss", "accuracy", "examples_per_sec")


def make(context: Context) -> keras.callbacks.Callback:
    """Returns the callback; it is silent on workers that are not chief."""
    if not context.is_chief:
        return keras.callbacks.Callback()
    return _Bar(context) if sys.stderr.isatty() else _Lines(context)


class _Bar(keras.callbacks.Callback):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._bar = tqdm.tqdm(
            total=context.train_steps,
            initial=context.start_step,
            unit="step",
            dynamic_ncols=True,
        )

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        self._bar.set_postfix_str(_describe(logs), refresh=False)
        self._bar.update(batch - self._bar.n)

    def on_test_end(self, logs: dict[str, float]) -> None:
        self._bar.write(f"step {self._bar.n}: evaluation {_describe(logs)}")

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        self._bar.close()


class _Lines(keras.callbacks.Callback):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._end = context.train_steps
        self._step = context.start_step

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        self._step = batch
        remaining = (self._end - batch) / logs["steps_per_sec"]
        print(
            f"step {batch}/{self._end}: {_describe(logs)}, "
            f"{tqdm.tqdm.format_interval(remaining)} to go",
            flush=True,
        )

    def on_test_end(self, logs: dict[str, float]) -> None:
        print(f"step {self._step}: evaluation {_describe(logs)}", flush=True)


def _describe(logs: Mapping[str, float]) -> str:
    """Returns `loss 0.0512, accuracy 0.983, examples/s 11,200`.

    A layer that iterates reports the share of examples that have converged;
    it is only shown if some have not.
    """
    words = []
    for name in _SHOWN:
        if name in logs:
            text = f"{logs[name]:,.{0 if name == _SHOWN[-1] else 4}f}"
            words.append(f"{name.replace('_per_sec', '/s')} {text}")
    for name, value in logs.items():
        layer, found, _ = name.rpartition("_converged")
        if found and not value >= 1:
            words.append(f"{layer} has not converged for {1 - value:.1%}")
    return ", ".join(words)
