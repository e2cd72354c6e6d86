"""Iterating a function of a state, each example until it stays still.

Shapes: `B` batch, `...` the axes of one example, `D` their values, `m` memory.

Used forward, on a cell, and backward, on the equation of its gradient.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np
import tensorflow as tf

from model.layers import _inputs

# Times the precision of the type: added to the diagonal of a Gram matrix of
# largest diagonal 1, so that its factor exists.
_RIDGE = 10.0


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to iterate."""

    maximum_iterations: int
    """Bound on the applications of the function. Positive."""
    damping: float
    """Share of the old state in the new one, in [0, 1)."""
    memory: int
    """Steps that Anderson acceleration looks back on; 0: none."""

    def __post_init__(self) -> None:
        if not _inputs.is_count(self.memory, 0):
            raise ValueError(
                f"memory={self.memory!r}: must be an integer of 0 or more."
            )
        if not 0 <= self.damping < 1:
            raise ValueError(f"damping={self.damping}: must be in [0, 1).")


class Found(NamedTuple):
    """Where the iteration of each example ended."""

    state: tf.Tensor
    """`[B, ...]`, one application of the function before the result."""
    iterations: tf.Tensor
    """`[B]` int32, that last application included."""


def find(
    function: Callable[[tf.Tensor], tf.Tensor],
    start: tf.Tensor,
    tolerance: float | tf.Tensor,
    settings: Settings,
) -> Found:
    """Returns `h` with `max |function(h) - h| <= tolerance` if it is found.

    The function must treat each example by itself. An example that has
    arrived is frozen; so is one whose change is not a number.

    Args:
        function: `[B, ...]` to `[B, ...]`.
        start: First state, `[B, ...]`.
        tolerance: `[]` or `[B]`, in the unit of the state.
        settings: Its bound includes the application left to the caller.
    """
    damping, memory = settings.damping, settings.memory
    row = [-1] + [1] * (len(start.shape) - 1)
    history = _no_history(start, memory) if memory else []

    def iterate(
        k: tf.Tensor,
        h: tf.Tensor,
        active: tf.Tensor,
        iterations: tf.Tensor,
        *history: tf.Tensor,
    ) -> list[tf.Tensor]:
        new = function(h)
        iterations += tf.cast(active, tf.int32)
        moves = largest_change(new, h) > limit(new, tolerance)
        active = tf.logical_and(active, moves)
        if memory:
            new, history = _accelerate(k, h, new, history, 1 - damping)
        elif damping:
            new = damping * h + (1 - damping) * new
        h = tf.where(tf.reshape(active, row), new, h)
        return [k + 1, h, active, iterations, *history]

    batch = tf.shape(start)[:1]
    if settings.maximum_iterations == 1:  # XLA differentiates no empty loop
        return Found(start, tf.ones(batch, tf.int32))
    _, state, active, iterations, *_ = tf.while_loop(
        lambda k, h, active, *_: tf.reduce_any(active),
        iterate,
        [0, start, tf.fill(batch, True), tf.zeros(batch, tf.int32), *history],
        maximum_iterations=settings.maximum_iterations - 1,
    )
    return Found(state, iterations + tf.cast(active, tf.int32))


def largest_change(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    """Returns the maximum norm of `new - old` of each example, `[B]`.

    A maximum does not depend on the order of its terms, a sum does: the same
    row stops at the same iteration in any batch and on any device.
    """
    change = tf.abs(_widen(new) - _widen(old))
    return tf.reduce_max(change, axis=list(range(1, len(change.shape))))


def limit(new: tf.Tensor, tolerance: float | tf.Tensor) -> tf.Tensor:
    """Returns the largest change that counts as none, `[]` or `[B]`.

    In half precision that is at least one step of rounding of the largest
    value: a smaller tolerance would wait for no change at all.
    """
    tolerance = tf.cast(tolerance, _widen(new).dtype)
    if new.dtype.size >= 4:
        return tolerance
    rounding = float(ml_dtypes.finfo(new.dtype.as_numpy_dtype).eps)
    size = largest_change(new, tf.zeros_like(new))
    return tf.maximum(tolerance, rounding * size)


def _widen(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(
        tensor, tensor.dtype if tensor.dtype.size >= 4 else "float32"
    )


def _no_history(start: tf.Tensor, memory: int) -> list[tf.Tensor]:
    """Returns previous state and residual `[B, D]`, `m` changes of each."""
    flat = tf.zeros_like(_flatten(start))
    changes = tf.repeat(flat[:, tf.newaxis], memory, axis=1)
    return [flat, flat, changes, changes]


def _flatten(state: tf.Tensor) -> tf.Tensor:
    return _widen(tf.reshape(state, [tf.shape(state)[0], -1]))


def _accelerate(
    k: tf.Tensor,
    old: tf.Tensor,
    new: tf.Tensor,
    history: tuple[tf.Tensor, ...],
    step: float,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Anderson's step from `old` and its image `new`, and the new history.

    Walker and Ni (2011), Anderson acceleration for fixed-point iterations,
    https://doi.org/10.1137/10078356X, in the form of differences: among the
    states of the last steps that one is taken whose residual is the smallest
    in the sense of least squares.
    """
    state, image = _flatten(old), _flatten(new)
    residual = image - state
    last_state, last_residual, states, residuals = history
    memory = states.shape[1]
    # The first step has no predecessor: its slot stays zero, as do those that
    # are not filled yet, and zero changes get no weight.
    slot = tf.logical_and(tf.range(memory) == k % memory, k > 0)
    slot = slot[tf.newaxis, :, tf.newaxis]
    states = tf.where(slot, (state - last_state)[:, tf.newaxis], states)
    residuals = tf.where(
        slot, (residual - last_residual)[:, tf.newaxis], residuals
    )
    weights = _least_squares(residuals, residual)
    correction = tf.einsum("bm,bmd->bd", weights, states + step * residuals)
    accelerated = state + step * residual - correction
    accelerated = tf.cast(tf.reshape(accelerated, tf.shape(old)), old.dtype)
    # Reshaping to a tensor loses the static shape, which a loop must keep.
    accelerated = tf.ensure_shape(accelerated, old.shape)
    return accelerated, (state, residual, states, residuals)


def _least_squares(rows: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Returns `w` `[B, m]` that minimizes `|target - sum_m w_m rows_m|`."""
    gram = tf.matmul(rows, rows, transpose_b=True)
    right = tf.matmul(rows, target[..., tf.newaxis])
    scale = tf.reduce_max(tf.linalg.diag_part(gram), axis=-1)
    # What is zero or not a number has no factor, and TensorFlow stops then.
    good = tf.logical_and(scale > 0, tf.math.is_finite(scale))
    good = good[:, tf.newaxis, tf.newaxis]
    scale = tf.where(good, scale[:, tf.newaxis, tf.newaxis], 1.0)
    eye = tf.eye(gram.shape[-1], dtype=gram.dtype)
    ridge = _RIDGE * np.finfo(gram.dtype.as_numpy_dtype).eps
    gram = tf.where(good, gram / scale + ridge * eye, eye)
    right = tf.where(good, right / scale, 0.0)
    return tf.linalg.cholesky_solve(tf.linalg.cholesky(gram), right)[..., 0]
