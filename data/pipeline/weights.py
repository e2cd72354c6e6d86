"""What each row of a batch counts: padding, and weights of a dataset's own.

A row of weight 0 is no example: it pads, or could not be read. So an example
whose own weight is 0 keeps the smallest float32 there is, 1.2e-38, which no
sum notices; it is still counted and predicted, and training takes it for 0.

`B` rows.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from data import DataConfig
from errors import RequestError

SMALLEST = float(np.finfo(np.float32).tiny)


def times(weights: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Multiplies weights `[B]`; those above 0 stay above 0."""
    product = tf.maximum(weights * factors, SMALLEST)
    return tf.where(weights > 0, product, tf.zeros_like(weights))


def join(example: tuple[Any, ...], weights: tf.Tensor) -> tuple[Any, ...]:
    """Puts what examples and their places in a batch weigh into one.

    Args:
        example: (features, labels), or (features, labels, weights `[B]`).
        weights: `[B]`, 0 for a row that is no example.

    Returns:
        (features, labels, weights `[B]`).
    """
    features, labels, *own = example
    for factors in own:
        weights = times(weights, factors)
        if labels.dtype.is_floating:
            labels = _drop_missing(labels, factors)
    return features, labels, weights


def refuse_bad(example: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns an example `(features, labels, weight)`; TensorFlow code.

    Reading fails if its weight is below 0 or no number.
    """
    features, labels, weight = example
    told = ["a weight must be 0 or more, but is", weight]
    with tf.control_dependencies([tf.debugging.Assert(_fit(weight), told)]):
        return features, labels, tf.identity(weight)


def check_array(weights: tf.Tensor, split: str, config: DataConfig) -> None:
    """Checks the weights of all examples.

    Raises:
        RequestError: naming the first that is below 0 or no number.
    """
    bad = np.flatnonzero(~_fit(weights).numpy())
    if bad.size:
        raise RequestError(
            f"--dataset={config.dataset}: the weight of example {bad[0]} of "
            f"split {split} is {weights[bad[0]]}; it must be 0 or more."
        )


def _drop_missing(labels: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Sets labels `[B, …]` to 0 that are of weight 0 and not finite.

    Gradients and metrics multiply by the weight, and 0 times NaN is NaN.
    """
    ones = tf.ones([tf.rank(labels) - tf.rank(factors)], tf.int32)
    counts = tf.reshape(factors > 0, tf.concat([tf.shape(factors), ones], 0))
    keeps = counts | tf.math.is_finite(labels)
    kept = tf.where(keeps, labels, tf.zeros_like(labels))
    return tf.ensure_shape(kept, labels.shape)


def _fit(weights: tf.Tensor) -> tf.Tensor:
    return (weights >= 0) & tf.math.is_finite(weights)
