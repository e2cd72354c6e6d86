"""The inner loop: many steps in one compiled call.

A Python loop in a compiled function would be unrolled, and AutoGraph, which
could translate it, is off as in Keras's own `fit`: layers see the same rules.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

# (iterator, number of steps as an int64 tensor) → results by name
Loop = Callable[[Any, tf.Tensor], dict[str, tf.Tensor]]


def make(step: Callable[[Any], None], metrics: Sequence[keras.Metric]) -> Loop:
    """Returns a compiled loop around `step` that reports `metrics`.

    Args:
        step: Takes a global batch, in cross-replica context.
        metrics: Updated by the steps; reset before the first and read after
            the last, so that each call reports on its own steps only.
    """

    @tf.function(autograph=False)
    def loop(iterator: Any, num_steps: tf.Tensor) -> dict[str, tf.Tensor]:
        def body(done: tf.Tensor) -> tuple[tf.Tensor]:
            step(iterator.get_next())
            return (done + 1,)

        for metric in metrics:
            metric.reset_state()
        tf.while_loop(
            lambda done: done < num_steps,
            body,
            (tf.zeros_like(num_steps),),
            parallel_iterations=1,
        )
        return {metric.name: _result(metric) for metric in metrics}

    return loop


def _result(metric: keras.Metric) -> tf.Tensor:
    """Returns the value of a metric; NaN, not 0, for a mean of nothing."""
    result = metric.result()
    if isinstance(metric, keras.metrics.Mean):
        count = tf.convert_to_tensor(metric.count)
        result = tf.where(count > 0, result, tf.cast(math.nan, result.dtype))
    return result
