"""Scalars for TensorBoard, in `<model_dir>/summaries/train` and `…/eval`."""

from collections.abc import Mapping

import keras
import tensorflow as tf

from training import files
from training.callbacks import Context


def make(context: Context) -> keras.callbacks.Callback:
    """Returns the callback; it writes on the chief only."""
    return (
        _Summaries(context) if context.is_chief else keras.callbacks.Callback()
    )


class _Summaries(keras.callbacks.Callback):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._train, self._eval = (
            create_writer(context.model_dir, split)
            for split in ("train", "eval")
        )
        self._step = context.start_step

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        self._step = batch
        write(self._train, logs, batch)

    def on_test_end(self, logs: dict[str, float]) -> None:
        write(self._eval, logs, self._step)

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        with files.explained("the summaries could not be closed", "continue"):
            self._train.close()
            self._eval.close()


def create_writer(model_dir: str, split: str) -> tf.summary.SummaryWriter:
    """Returns a writer into `<model_dir>/summaries/<split>`."""
    folder = tf.io.gfile.join(model_dir, "summaries", split)
    return tf.summary.create_file_writer(folder)


def write(
    writer: tf.summary.SummaryWriter, logs: Mapping[str, float], step: int
) -> None:
    """Writes one scalar each; trouble with files is printed, not raised."""
    # Never worth the run: the same numbers are in metrics.jsonl.
    what = f"step {step}: the summaries could not be written"
    with files.explained(what, errors="continue"), writer.as_default(step=step):
        for name, value in logs.items():
            tf.summary.scalar(name, value)
        writer.flush()
