"""What TensorBoard shows, in `<model_dir>/summaries/train` and `…/eval`.

Scalars of training and evaluation have one chart each; at evaluations there
are pictures of what the model makes of a few examples; the flags are there as
text and as hyperparameters, and the model as a graph.

On a disk they are there at once. An object store cannot append: each upload is
of the whole file, so there is one every two minutes, and one at the end.
"""

import time
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams_api

from training import files
from training.callbacks import Context
from training.callbacks import _look
from training.callbacks import _settings

Lines = dict[int, Mapping[str, float]]  # step → name → value

_UPLOAD_SECS = 120.0
# Scalars that TensorFlow holds back before it writes to the file by itself.
_QUEUE = 100_000
# Section of TensorBoard → how the names in it end. The rest is `metrics`.
_SECTIONS = {
    "speed": (
        *("_per_sec", "_per_sec_per_replica", "flops_per_step", "mfu"),
        *("goodput", "_share", "_memory_mb"),
    ),
    "optimizer": ("_rate", "_norm", "loss_scale", "skipped_steps"),
    "solvers": ("_iterations", "_residual", "_converged"),
}


def make(context: Context) -> keras.callbacks.Callback:
    """Returns the callback; it writes on the chief only."""
    return (
        _Summaries(context) if context.is_chief else keras.callbacks.Callback()
    )


class _Summaries(keras.callbacks.Callback):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context
        self._writers = {
            split: create_writer(context.model_dir, split)
            for split in ("train", "eval")
        }
        self._waiting: dict[str, Lines] = {split: {} for split in self._writers}
        self._pictures: dict[int, _look.Pictures] = {}
        self._draw = _look.make(context)
        is_remote = files.is_object_store(context.model_dir)
        self._secs = _UPLOAD_SECS if is_remote else 0.0
        self._written = time.monotonic()
        self._step = context.start_step

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        what = "the flags could not be written for TensorBoard"
        # Beside the results of evaluations, by which runs are compared.
        writer = self._writers["eval"]
        with files.explained(what, "continue"), writer.as_default():
            config = self._context.config
            tf.summary.text("flags", _settings.as_text(config), step=0)
            # A trial of its own, also if another run has the same flags.
            hparams_api.hparams(
                _settings.hyperparameters(config), self._context.model_dir
            )

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        self._step = batch
        self._add("train", logs)

    def on_test_end(self, logs: dict[str, float]) -> None:
        self._keep_pictures()
        self._add("eval", logs)

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        self._write()
        with files.explained("the summaries could not be closed", "continue"):
            for writer in self._writers.values():
                writer.close()

    def _add(self, split: str, logs: Mapping[str, float]) -> None:
        self._waiting[split][self._step] = dict(logs)
        if time.monotonic() - self._written >= self._secs:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        for split, lines in self._waiting.items():
            if lines:
                pictures = self._pictures if split == "eval" else {}
                write(self._writers[split], lines, pictures)
                self._waiting[split] = {}
        self._pictures = {}

    def _keep_pictures(self) -> None:
        """Draws pictures; the first time it writes the model's graph too."""
        try:
            drawn, graph = self._draw()
        except Exception as error:
            # Whatever a model raises that cannot do without its strategy: a
            # picture is not worth the run.
            self._draw = _look.draw_nothing
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            print(
                f"step {self._step}: no pictures for TensorBoard: {reason}",
                flush=True,
            )
            return
        self._pictures[self._step] = drawn
        if graph is not None:
            what = "the graph could not be written for TensorBoard"
            writer = self._writers["eval"]
            with files.explained(what, "continue"), writer.as_default():
                tf.summary.graph(graph)


def create_writer(model_dir: str, split: str) -> tf.summary.SummaryWriter:
    """Returns a writer into `<model_dir>/summaries/<split>`."""
    folder = tf.io.gfile.join(model_dir, "summaries", split)
    return tf.summary.create_file_writer(folder, max_queue=_QUEUE)


def write(
    writer: tf.summary.SummaryWriter,
    lines: Lines,
    pictures: Mapping[int, _look.Pictures] | None = None,
) -> None:
    """Writes scalars and pictures; trouble with files is printed, not raised.

    Args:
        writer: From `create_writer`.
        lines: Scalars.
        pictures: Step → tag → picture.
    """
    # Never worth the run: the same numbers are in metrics.jsonl.
    what = f"step {max(lines)}: the summaries could not be written"
    # The end of `as_default` flushes.
    with files.explained(what, errors="continue"), writer.as_default():
        for step, logs in lines.items():
            for name, value in logs.items():
                if name != "examples":  # always as many
                    tf.summary.scalar(_tag(name), value, step=step)
        for step, drawn in (pictures or {}).items():
            for tag, picture in drawn.items():
                tf.summary.image(tag, picture[np.newaxis], step=step)


def _tag(name: str) -> str:
    for section, endings in _SECTIONS.items():
        if name.endswith(endings):
            return f"{section}/{name}"
    return f"metrics/{name}"
