"""Gradients of a global batch: gathered in parts, summed once, clipped.

On `R` replicas with `A` micro-batches the gradient of the loss of the whole
global batch is the sum of `R·A` parts. Each replica adds up its `A` parts by
itself; one all-reduce adds the replicas; only then is the sum clipped, so that
clipping sees what one device would see.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# One gradient for each variable; None where the loss does not depend on it.
Gradients = list[tf.Tensor | None]


def split(batch: Any, count: int) -> list[Any]:
    """Cuts a replica's batch of `B` rows into `count` micro-batches.

    Row `i` of the global batch is row `i // R` of a replica, so micro-batch
    `k` is the same set of rows for every number of replicas.
    """
    if count == 1:
        return [batch]
    size = tf.nest.flatten(batch)[0].shape[0] // count
    return [
        tf.nest.map_structure(
            lambda rows, first=first: rows[first : first + size], batch
        )
        for first in range(0, size * count, size)
    ]


def after(previous: Gradients, batch: Any) -> Any:
    """Returns `batch`, available only once `previous` are computed.

    Without it the micro-batches would run at the same time, and need the
    memory of the whole batch.
    """
    ready = [gradient for gradient in previous if gradient is not None]
    if not ready:
        return batch
    with tf.control_dependencies(ready):
        return tf.nest.map_structure(tf.identity, batch)


def add(left: Gradients, right: Gradients) -> Gradients:
    """Adds two lists of gradients; those of embeddings become dense."""
    if not left:
        return [None if g is None else tf.convert_to_tensor(g) for g in right]
    return [
        None if a is None or b is None else a + tf.convert_to_tensor(b)
        for a, b in zip(left, right, strict=True)
    ]


def sum_over_replicas(values: Sequence[tf.Tensor | None]) -> list[Any]:
    """Adds each value over all replicas, in one reduction.

    Call it in replica context, outside of any loop or condition.
    """
    given = [value for value in values if value is not None]
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync > 1 and given:
        given = context.all_reduce(tf.distribute.ReduceOp.SUM, given)
    summed = iter(given)
    return [None if value is None else next(summed) for value in values]


def clip(gradients: Gradients, clipnorm: float) -> Gradients:
    """Scales all down together so that their norm is at most `clipnorm`."""
    # Passes None through, and leaves NaN for others to find.
    clipped, _ = tf.clip_by_global_norm(gradients, clipnorm)
    return clipped


def are_finite(gradients: Gradients) -> tf.Tensor:
    """Returns whether every value is finite, bool `[]`."""
    each = [
        tf.reduce_all(tf.math.is_finite(gradient))
        for gradient in gradients
        if gradient is not None
    ]
    return tf.reduce_all(tf.stack(each))
