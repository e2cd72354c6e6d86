"""Scalars for TensorBoard, in `<model_dir>/summaries/train` and `…/eval`.

On a disk they are there at once. An object store cannot append: each upload is
of the whole file, so there is one every two minutes, and one at the end.
"""

import time
from collections.abc import Mapping

import keras
import tensorflow as tf

from training import files
from training.callbacks import Context

Lines = dict[int, Mapping[str, float]]  # step → name → value

_UPLOAD_SECS = 120.0
# Scalars that TensorFlow holds back before it writes to the file by itself.
_QUEUE = 100_000


def make(context: Context) -> keras.callbacks.Callback:
    """Returns the callback; it writes on the chief only."""
    return (
        _Summaries(context) if context.is_chief else keras.callbacks.Callback()
    )


class _Summaries(keras.callbacks.Callback):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._writers = {
            split: create_writer(context.model_dir, split)
            for split in ("train", "eval")
        }
        self._waiting: dict[str, Lines] = {split: {} for split in self._writers}
        is_remote = files.is_object_store(context.model_dir)
        self._secs = _UPLOAD_SECS if is_remote else 0.0
        self._written = time.monotonic()
        self._step = context.start_step

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        self._step = batch
        self._add("train", logs)

    def on_test_end(self, logs: dict[str, float]) -> None:
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
                write(self._writers[split], lines)
                self._waiting[split] = {}


def create_writer(model_dir: str, split: str) -> tf.summary.SummaryWriter:
    """Returns a writer into `<model_dir>/summaries/<split>`."""
    folder = tf.io.gfile.join(model_dir, "summaries", split)
    return tf.summary.create_file_writer(folder, max_queue=_QUEUE)


def write(writer: tf.summary.SummaryWriter, lines: Lines) -> None:
    """Writes one scalar each; trouble with files is printed, not raised."""
    # Never worth the run: the same numbers are in metrics.jsonl.
    what = f"step {max(lines)}: the summaries could not be written"
    # The end of `as_default` flushes.
    with files.explained(what, errors="continue"), writer.as_default():
        for step, logs in lines.items():
            for name, value in logs.items():
                tf.summary.scalar(name, value, step=step)
