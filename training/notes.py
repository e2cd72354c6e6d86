"""What a step notes of itself for those who watch: its loss, and norms."""

from collections.abc import Sequence

import keras
import tensorflow as tf


def loss(
    metric: keras.metrics.Mean,
    value: tf.Tensor,
    finite: tf.Tensor,
    may_skip: bool,
) -> None:
    """Updates `metric` with the loss of a step.

    Args:
        metric: Mean over steps.
        value: The loss of the global batch, `[]`.
        finite: Whether the gradients are, bool `[]`.
        may_skip: Whether a step whose gradients are not is skipped. Then its
            loss counts only if it is a number.
    """
    if not may_skip:
        metric.update_state(value)
        return
    counts = tf.logical_or(finite, tf.math.is_finite(value))
    value = tf.where(counts, value, tf.zeros_like(value))
    metric.update_state(value, tf.cast(counts, value.dtype))


def gradient_norm(
    metric: keras.metrics.Mean,
    gradients: Sequence[tf.Tensor | None],
    is_due: tf.Tensor,
) -> None:
    """Updates `metric` with the norm of the gradients, if it is due.

    Not in every step: a small model would notice.
    """

    def update() -> tf.Tensor:
        metric.update_state(norm(gradients))
        return tf.constant(True)

    tf.cond(is_due, update, lambda: tf.constant(False))


def norm(tensors: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """Returns the norm of all tensors together, float32 `[]`."""
    given = [tf.cast(each, tf.float32) for each in tensors if each is not None]
    return tf.linalg.global_norm(given)
