"""Loss and metrics: the model's own, or those of the dataset's task.

`B` batch, `C` classes, `K` values of a regression target.
"""

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import keras
import tensorflow as tf

from errors import RequestError


class Task(NamedTuple):
    """How outputs are judged."""

    per_example_loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    """(labels, outputs `[B, …]`) → loss of each example, `[B]`."""
    make_metrics: Callable[[], list[keras.Metric]]
    """Metrics, updated with (labels, outputs, sample_weight `[B]`). Call it
    in the strategy's scope."""


def resolve(model_module: ModuleType, task: str) -> Task:
    """Returns what the model's module defines and the task's for the rest.

    Args:
        model_module: May define `per_example_loss` and `make_metrics`.
        task: `classification` or `regression`.
    """
    default = _DEFAULTS[task]
    return Task(
        getattr(model_module, "per_example_loss", default.per_example_loss),
        # Once for both loops: Keras would number the names of a second set.
        functools.cache(
            getattr(model_module, "make_metrics", default.make_metrics)
        ),
    )


def _cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the loss `[B]` of integer labels `[B]` and logits `[B, C]`."""
    fits = labels.dtype.is_integer and labels.shape.rank == 1
    _check(fits and len(logits.shape) == 2, "classes [B] as integers", labels)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def _squared_error(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Returns the mean over `K` of squared errors, `[B]`."""
    wanted = f"as many numbers as the outputs {outputs.shape}"
    sizes = [math.prod(t.shape[1:]) for t in (labels, outputs)]
    _check(labels.dtype.is_floating and sizes[0] == sizes[1], wanted, labels)
    labels = tf.cast(tf.reshape(labels, tf.shape(outputs)), outputs.dtype)
    difference = tf.math.squared_difference(labels, outputs)
    return tf.reduce_mean(
        difference, axis=list(range(1, difference.shape.rank))
    )


def _check(fits: bool, wanted: str, labels: tf.Tensor) -> None:
    """Refuses labels that the default losses would misread."""
    if not fits:
        raise RequestError(
            f"--dataset: its labels are {labels.dtype.name} {labels.shape}, "
            f"but the default loss of its task needs {wanted}; change them, "
            "or define per_example_loss beside the model's build."
        )


_DEFAULTS = {
    "classification": Task(
        _cross_entropy,
        lambda: [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    ),
    "regression": Task(_squared_error, lambda: []),
}
