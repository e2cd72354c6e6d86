"""Scalars for TensorBoard, in `<model_dir>/summaries/train` and `…/eval`."""

from collections.abc import Mapping

import keras
import tensorflow as tf

from training.callbacks import Context


def make(context: Context) -> keras.callbacks.Callback:
    """Returns the callback; it writes on the chief only."""
    return (
        _Summaries(context) if context.is_chief else keras.callbacks.Callback()
    )


class _Summaries(keras.callbacks.Callback):
    def __init__(self, context: Context) -> None:
        super().__init__()
        folder = tf.io.gfile.join(context.model_dir, "summaries")
        self._train, self._eval = (
            tf.summary.create_file_writer(tf.io.gfile.join(folder, split))
            for split in ("train", "eval")
        )
        self._step = context.start_step

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        self._step = batch
        _write(self._train, logs, batch)

    def on_test_end(self, logs: dict[str, float]) -> None:
        _write(self._eval, logs, self._step)

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        self._train.close()
        self._eval.close()


def _write(
    writer: tf.summary.SummaryWriter, logs: Mapping[str, float], step: int
) -> None:
    with writer.as_default(step=step):
        for name, value in logs.items():
            tf.summary.scalar(name, value)
    writer.flush()
