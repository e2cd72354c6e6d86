"""A layer that runs a linear recurrence over time.

Shapes: `B` batch, `T` time steps, `K` values of a state.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

# Coefficients, offsets, initial state → all states.
_Solver = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
_METHODS = ("auto", "loop", "scan")
# Widest full matrix that "auto" scans: wider, the products cost too much.
_MAXIMUM_SCANNED_WIDTH = 32


@keras.saving.register_keras_serializable(package="keras_template")
class ScanRecurrence(keras.layers.Layer):
    """Computes all states of a linear recurrence with given coefficients.

    Use it for state-space models, gated averages and filters.

    Computes `h[t] = A[t] h[t - 1] + b[t]` for `t = 1 ... T`, from `h[0]`, where
    `A[t]` is a full matrix or, as a vector, a diagonal one.

    References: Blelloch (1990), Prefix sums and their applications, section
    1.4; Martin and Cundy (2018), Parallelizing linear recurrent neural nets
    over sequence length, https://arxiv.org/abs/1709.04057, section 2.

    Loop invariant: before iteration `t`, counted from 0, the loop holds `h[t]`
    and the buffer `h[0] ... h[t]`. The scan merges steps two by two to a
    recurrence of half the length, solves that for every second state, and
    makes the others from those: `O(log T)` operations one after another
    instead of `T`, but `K` times the work if `A` is full.

    Stopping rule: `T` iterations, whatever the values; no tolerance. `T = 0`
    gives an empty output. NaN stays in its own example from its time on; with
    a diagonal `A` in its own index of `K` too. The scan also multiplies
    coefficients: far above 1 they can overflow before a state does.

    Gradients come by the same method run backwards in time, from the inputs
    and the output alone. XLA compiles both directions, together or apart.

    Time of "loop" ÷ that of "scan", forward / and backward; above 1 the scan
    is faster (two CPU cores, `B = 8`, float32; on an accelerator depth counts
    more, and work less):

           T   diagonal, K = 64       full, K = 16        full, K = 64
               graph      XLA         graph      XLA      graph      XLA
          64   2.4/2.5  1.1/1.1     3.1/3.1  0.6/0.7
         256   2.7/3.1  1.0/0.8     5.7/6.4  0.4/0.6    1.0/1.1  0.3/0.4
        1024   3.7/3.6  0.9/0.7     7.7/6.5  0.3/0.5
        4096   4.7/3.9  0.7/0.5      12/8.3  0.3/0.5

    Args:
        method: "loop"; "scan", which needs a known `T`; or "auto": "scan" if
            `T` is known and `A` is diagonal or `K` at most 32, else "loop".
            It cannot know of XLA.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[A, b]` or `[A, b, h[0]]`; `h[0]` is zero if not given. States
            are added up in float32 or wider: small offsets are not lost.

    Input shape:
        `[B, T, K]` for a diagonal or `[B, T, K, K]` for a full `A`,
        `[B, T, K]`, and `[B, K]`; floating point, one type. `K` must be known.

    Output shape:
        `[B, T, K]`, `h[1] ... h[T]`, in the layer's compute dtype.

    Raises:
        ValueError: if `method` is not one of the three, the inputs are not two
            or three of these shapes with equal `B`, `T` and `K`, or `T` is
            unknown for "scan".
        TypeError: if the inputs are not of one floating point type.

    Example:
        >>> decay, values = tf.fill([1, 4, 2], 0.5), tf.ones([1, 4, 2])
        >>> ScanRecurrence()([decay, values])[0, :, 0].numpy()
        array([1.   , 1.5  , 1.75 , 1.875], dtype=float32)
    """

    def __init__(self, *, method: str = "auto", **kwargs: Any) -> None:
        if method not in _METHODS:
            raise ValueError(f"method={method!r}: must be one of {_METHODS}.")
        super().__init__(**kwargs)
        self.method = method

    def build(self, input_shape: Sequence[Sequence[int | None]]) -> None:
        self._check(input_shape)

    def _check(self, shapes: Sequence[Sequence[int | None]]) -> None:
        if not _fit(shapes):
            raise ValueError(
                f"{self.name}: inputs of shapes {shapes} do not fit; they must "
                "be coefficients [B, T, K] or [B, T, K, K], offsets [B, T, K] "
                "and, if wanted, initial states [B, K], with K known."
            )
        if self.method == "scan" and shapes[1][1] is None:
            raise ValueError(
                f"{self.name}: T is unknown; give it, or take method='loop'."
            )

    def call(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        dtypes = [tensor.dtype.name for tensor in inputs]
        if len(set(dtypes)) > 1 or not inputs[0].dtype.is_floating:
            raise TypeError(
                f"{self.name}: inputs are {dtypes}; cast them to one floating "
                "point type first."
            )
        self._check([tuple(tensor.shape) for tensor in inputs])
        # In bfloat16 a sum of ones would stay at 256 for ever.
        wide = tf.float32 if inputs[0].dtype.size < 4 else inputs[0].dtype
        a, b, *initial = (tf.cast(tensor, wide) for tensor in inputs)
        zeros = tf.zeros([tf.shape(b)[0], b.shape[2]], wide)
        solve = _differentiable(self._solver(a))
        states = solve(a, b, initial[0] if initial else zeros)
        return tf.cast(states, inputs[0].dtype)

    def _solver(self, a: tf.Tensor) -> _Solver:
        cheap = a.shape.rank == 3 or a.shape[2] <= _MAXIMUM_SCANNED_WIDTH
        auto = "scan" if cheap and a.shape[1] is not None else "loop"
        method = auto if self.method == "auto" else self.method
        return _scan if method == "scan" else _loop

    def compute_output_shape(
        self, input_shape: Sequence[Sequence[int | None]]
    ) -> tuple[int | None, ...]:
        return tuple(input_shape[1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "method": self.method}


def _fit(shapes: Sequence[Any]) -> bool:
    ranks = [len(s) if isinstance(s, Sequence) else 0 for s in shapes]
    if ranks[1:] not in ([3], [3, 2]) or not shapes[1][2]:
        return False
    coefficients, offsets, *initial = (tuple(shape) for shape in shapes)
    time, width = offsets[1:]
    return (
        coefficients[1:] in ((time, width), (time, width, width))
        and all(shape[1:] == (width,) for shape in initial)
        and len({shape[0] for shape in shapes} - {None}) < 2
    )


def _loop(a: tf.Tensor, b: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
    """Returns all states after `h`, step by step."""
    steps = b.shape[1] if b.shape[1] is not None else tf.shape(b)[1]
    if b.shape[1] == 0:
        return b  # XLA knows no buffer of nothing
    a, b = _swap(a), _swap(b)

    def step(
        t: tf.Tensor, h: tf.Tensor, states: tf.TensorArray
    ) -> list[tf.Tensor | tf.TensorArray]:
        h = _apply(a[t], h) + b[t]
        return [t + 1, h, states.write(t + 1, h)]

    # With the first state, because a buffer of nothing cannot be stacked.
    states = tf.TensorArray(b.dtype, steps + 1, element_shape=b.shape[1:])
    _, _, states = tf.while_loop(
        lambda t, *_: t < steps,
        step,
        [tf.constant(0), h, states.write(0, h)],
        maximum_iterations=b.shape[0],
    )
    return _swap(states.stack()[1:])


def _swap(x: tf.Tensor) -> tf.Tensor:
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def _scan(a: tf.Tensor, b: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
    """Returns all states after `h`, from those of half as many steps.

    Not `keras.ops.associative_scan`: in Keras 3.15 it compiles under XLA for
    up to 3 steps only, and also makes the products that no state needs.
    """
    steps = b.shape[1]
    if steps < 2:
        return _apply(a, h[:, None]) + b
    (a_1, a_2), (b_1, b_2) = _pairs(a), _pairs(b)
    second = _scan(_compose(a_2, a_1), _apply(a_2, b_1) + b_2, h)
    before = tf.concat([h[:, None], second[:, :-1]], 1)
    first = _apply(a_1, before) + b_1
    shape = [-1, steps + steps % 2, b.shape[2]]
    return tf.reshape(tf.stack([first, second], 2), shape)[:, :steps]


def _pairs(x: tf.Tensor) -> list[tf.Tensor]:
    """Returns the steps 1, 3, 5 ... of `x`, and the steps 2, 4, 6 ...

    The last of an odd number gets a step of zeros for a mate. Slices with a
    stride of 2 took up to 8 times as long.
    """
    steps, rank = x.shape[1], x.shape.rank
    x = tf.pad(x, [[0, 0], [0, steps % 2], *[[0, 0]] * (rank - 2)])
    x = tf.reshape(x, [-1, (steps + 1) // 2, 2, *x.shape[2:]])
    return tf.unstack(x, axis=2)


def _differentiable(solve: _Solver) -> _Solver:
    """Gives `solve` the gradient of what it computes.

    With `g[t]` the gradient by `b[t]`, `g[t] = dh[t] + A[t + 1]^T g[t + 1]`:
    the same recurrence from the end. Through a loop itself the backward pass
    took up to 22 times as long, and XLA would need a bound on the iterations.
    """

    @tf.custom_gradient
    def solve_forward(
        a: tf.Tensor, b: tf.Tensor, h: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        states = solve(a, b, h)

        def backward(of_states: tf.Tensor) -> list[tf.Tensor]:
            diagonal = a.shape.rank == 3
            adjoint = a if diagonal else tf.linalg.matrix_transpose(a)
            # Step T has none after it: its coefficient meets a zero state.
            after = tf.concat([adjoint[:, 1:], adjoint[:, :1]], 1)
            after, of_states = (tf.reverse(x, [1]) for x in (after, of_states))
            of_b = _differentiable(solve)(after, of_states, tf.zeros_like(h))
            of_b = tf.reverse(of_b, [1])
            before = tf.concat([h[:, None], states[:, :-1]], 1)
            if diagonal:
                of_a = of_b * before
            else:
                of_a = of_b[..., None] * before[..., None, :]
            of_h = tf.reduce_sum(_apply(adjoint[:, :1], of_b[:, :1]), 1)
            return [of_a, of_b, of_h]

        return states, backward

    return solve_forward


def _apply(a: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return a * x if a.shape.rank == x.shape.rank else tf.linalg.matvec(a, x)


def _compose(later: tf.Tensor, earlier: tf.Tensor) -> tf.Tensor:
    product = tf.multiply if later.shape.rank == 3 else tf.matmul
    return product(later, earlier)
