"""The iteration of conjugate gradients, each example for itself.

Shapes: `B` batch, `K` unknowns, `T` iterations.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

# [B, K] to [B, K]
Map = Callable[[tf.Tensor], tf.Tensor]


class Run(NamedTuple):
    """The variables of the loop."""

    active: tf.Tensor
    """`[B]`, whether the example is still iterated."""
    iterations: tf.Tensor
    """`[B]` int32."""
    solution: tf.Tensor
    """`[B, K]`, as are the next two."""
    residual: tf.Tensor
    direction: tf.Tensor
    product: tf.Tensor
    """`[B]`, residual times preconditioned residual."""


def find(
    times: Map,
    precondition: Map,
    vector: tf.Tensor,
    tolerance: float,
    maximum_iterations: int,
) -> Run:
    """Iterates until every example has stopped.

    Args:
        times: `A`, symmetric positive definite.
        precondition: An approximation of its inverse, likewise.
        vector: `b` `[B, K]`, of size 1 or so: it is squared.
        tolerance: Largest accepted residual, relative to `b`.
        maximum_iterations: Bound.
    """
    limit = tolerance * tf.norm(vector, axis=-1)
    return Run(
        *tf.while_loop(
            lambda *run: tf.reduce_any(run[0]),
            lambda *run: _advance(Run(*run), times, precondition, limit),
            _start(precondition, vector),
            maximum_iterations=maximum_iterations,
        )
    )


def record(
    times: Map,
    precondition: Map,
    vector: tf.Tensor,
    tolerance: float,
    maximum_iterations: int,
) -> tuple[Run, tf.Tensor]:
    """Like `find`, but runs all iterations and returns them, `[B, T, K]`."""
    limit = tolerance * tf.norm(vector, axis=-1)
    # A buffer of fixed size: one that grew would not compile under XLA.
    buffer = tf.TensorArray(
        vector.dtype, maximum_iterations, element_shape=vector.shape
    )

    def body(
        k: tf.Tensor, run: Run, buffer: tf.TensorArray
    ) -> tuple[tf.Tensor, Run, tf.TensorArray]:
        run = _advance(run, times, precondition, limit)
        return k + 1, run, buffer.write(k, run.solution)

    _, run, buffer = tf.while_loop(
        lambda k, *_: k < maximum_iterations,
        body,
        (0, _start(precondition, vector), buffer),
        maximum_iterations=maximum_iterations,
    )
    return run, tf.transpose(buffer.stack(), [1, 0, 2])


def _start(precondition: Map, vector: tf.Tensor) -> Run:
    preconditioned = precondition(vector)
    return Run(
        # Not a number is not zero: it is iterated once, and so becomes seen.
        active=tf.reduce_any(vector != 0, axis=-1),
        iterations=tf.zeros(tf.shape(vector)[:1], tf.int32),
        solution=tf.zeros_like(vector),
        residual=vector,
        direction=preconditioned,
        product=_dot(vector, preconditioned),
    )


def _advance(run: Run, times: Map, precondition: Map, limit: tf.Tensor) -> Run:
    image = times(run.direction)
    curvature = _dot(run.direction, image)
    # Along a direction without curvature there is no minimum to step to. NaN
    # goes on and is seen; `not curvature <= 0` would say so too, but
    # TensorFlow rewrites it to `curvature > 0`, which does not.
    steps = tf.logical_or(curvature > 0, tf.math.is_nan(curvature))
    active = tf.logical_and(run.active, steps)
    rate = _divide(active, run.product, curvature)
    solution = run.solution + rate * run.direction
    residual = run.residual - rate * image
    preconditioned = precondition(residual)
    product = _dot(residual, preconditioned)
    factor = _divide(active, product, run.product)
    iterations = run.iterations + tf.cast(active, tf.int32)
    above = tf.reduce_sum(tf.square(residual), axis=-1) > tf.square(limit)
    frozen = tf.logical_not(active)[:, tf.newaxis]
    return Run(
        active=tf.logical_and(active, above),
        iterations=iterations,
        solution=tf.where(frozen, run.solution, solution),
        residual=tf.where(frozen, run.residual, residual),
        direction=preconditioned + factor * run.direction,
        product=product,
    )


def _divide(active: tf.Tensor, over: tf.Tensor, under: tf.Tensor) -> tf.Tensor:
    """Returns `over / under` `[B, 1]`, and 0 where it is not needed.

    A frozen example would divide 0 by 0; the gradient of an unused NaN is NaN.
    """
    ratio = tf.where(active, over, 0.0) / tf.where(active, under, 1.0)
    return ratio[:, tf.newaxis]


def _dot(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(one * other, axis=-1)


def size(vector: tf.Tensor) -> tf.Tensor:
    """Returns the largest absolute value of each `[B, 1]`; 1 for zero."""
    largest = tf.reduce_max(tf.abs(vector), axis=-1, keepdims=True)
    return tf.stop_gradient(
        tf.where(largest > 0, largest, tf.ones_like(largest))
    )
