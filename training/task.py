"""Loss and metrics: the model's own, or those of the dataset's task.

`B` batch, `C` classes, `K` values of a regression target.
"""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import keras
import tensorflow as tf


class Task(NamedTuple):
    """How outputs are judged."""

    per_example_loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    """(labels, outputs `[B, …]`) → loss of each example, `[B]`."""
    make_metrics: Callable[[], list[keras.Metric]]
    """Metrics, updated with (labels, outputs, sample_weight `[B]`)."""


def resolve(model_module: ModuleType, task: str) -> Task:
    """Returns what the model's module defines and the task's for the rest.

    Args:
        model_module: May define `per_example_loss` and `make_metrics`.
        task: `classification` or `regression`.

    Raises:
        ValueError: if the task is neither.
    """
    if task not in _DEFAULTS:
        raise ValueError(
            f"task={task!r}: must be one of {', '.join(_DEFAULTS)}."
        )
    default = _DEFAULTS[task]
    return Task(
        getattr(model_module, "per_example_loss", default.per_example_loss),
        getattr(model_module, "make_metrics", default.make_metrics),
    )


def _cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the loss `[B]` of integer labels `[B]` and logits `[B, C]`."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def _squared_error(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Returns the mean over `K` of squared errors, `[B]`."""
    labels = tf.reshape(tf.cast(labels, outputs.dtype), tf.shape(outputs))
    difference = tf.math.squared_difference(labels, outputs)
    return tf.reduce_mean(
        difference, axis=list(range(1, difference.shape.rank))
    )


_DEFAULTS = {
    "classification": Task(
        _cross_entropy,
        lambda: [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    ),
    "regression": Task(_squared_error, lambda: []),
}
