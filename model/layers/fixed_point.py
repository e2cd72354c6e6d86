"""A layer that solves `h = f(h, x)` by iteration.

Shapes: `B` batch, `...` the axes of one example.
"""

import copy
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="keras_template")
class FixedPoint(keras.layers.Layer):
    """Iterates a cell until its state no longer changes.

    Use it for a network of unlimited depth with the weights of one layer: an
    equilibrium model, or the steps of a solver.

    Computes `h[0] = 0`, `h[k + 1] = cell([h[k], x])` for each example until
    `max |h[k + 1] - h[k]| <= tolerance` over the values of this example.

    Reference: Bai, Kolter and Koltun (2019), Deep Equilibrium Models,
    https://arxiv.org/abs/1909.01377, equation 2. Deviation: the gradient is
    that of the iterations made, not of the equilibrium (equation 9).

    Loop invariant: `h` holds `h[k]` of the examples that still change and the
    accepted state of the others, which are frozen, so that an example's result
    does not depend on its batch mates: not by a bit, if the cell computes a
    row the same way in any batch.

    Stopping rule: the change of one iteration, in the unit of `h`, as maximum
    norm over an example, measured in float32 or wider. A norm that is not a
    number stops its example too and stays visible in the output.

    Gradients flow through the iterations made (plain unrolling): memory grows
    with their number, and the cell must be a contraction for them to be those
    of the fixed point.

    XLA: compiles forward and backward if both are in one compiled function;
    that is what the static bound `maximum_iterations` is for.

    Args:
        cell: Any Keras layer or model, called on `[h, x]`, that returns a
            tensor of the shape of `x`. Its variables belong to this layer. It
            must be deterministic and must not update variables: no dropout,
            no batch normalization, no activity losses. A Functional model
            casts to the dtype of its inputs: give them the compute dtype.
        maximum_iterations: Bound on the iterations. Positive. An example that
            has not converged by then returns its last state; no error.
        tolerance: Largest accepted change; 0 iterates until nothing changes.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `x`, constant during the iteration.

    Input shape:
        `[B, ...]`, floating point, two axes or more.

    Output shape:
        That of the input, in the layer's compute dtype.

    Raises:
        ValueError: if `maximum_iterations` is not a positive integer,
            `tolerance` is negative, the input has fewer than two axes, or the
            cell does not keep the shape and the precision of its input.
        TypeError: if `cell` is not a Keras layer, or the input is not
            floating point.

    Example:
        >>> h, x = keras.Input([3, 5]), keras.Input([3, 5])
        >>> z = keras.ops.tanh(BatchedMatVec(5)(h) + x)
        >>> layer = FixedPoint(keras.Model([h, x], z))
        >>> layer(tf.zeros([2, 3, 5])).shape
        TensorShape([2, 3, 5])
    """

    def __init__(
        self,
        cell: keras.layers.Layer,
        *,
        maximum_iterations: int = 50,
        tolerance: float = 1e-4,
        **kwargs: Any,
    ) -> None:
        if not isinstance(cell, keras.layers.Layer):
            raise TypeError(f"cell={cell!r}: must be a Keras layer or model.")
        if not isinstance(maximum_iterations, int) or maximum_iterations < 1:
            raise ValueError(
                f"maximum_iterations={maximum_iterations!r}: must be a "
                "positive integer."
            )
        if not tolerance >= 0:
            raise ValueError(f"tolerance={tolerance}: must be 0 or more.")
        super().__init__(**kwargs)
        self.cell = cell
        self.maximum_iterations = maximum_iterations
        self.tolerance = tolerance

    def build(self, input_shape: Sequence[int | None]) -> None:
        if len(input_shape) < 2:
            raise ValueError(
                f"{self.name}: input shape {tuple(input_shape)} has fewer "
                "than two axes; it must be [batch, ...]."
            )
        narrow = [
            tensor.dtype
            for tensor in getattr(self.cell, "inputs", None) or ()
            if tf.as_dtype(tensor.dtype).size
            < tf.as_dtype(self.compute_dtype).size
        ]
        if narrow:
            raise ValueError(
                f"{self.name}: the cell casts its inputs to {narrow[0]}; "
                f"make them keras.Input(..., dtype={self.compute_dtype!r})."
            )
        # A symbolic call makes the cell's variables here, whatever kind of
        # layer it is: inside the loop it would be too late.
        x = keras.KerasTensor(input_shape, self.compute_dtype)
        state = self.cell([x, x])
        if state.shape != x.shape:
            raise ValueError(
                f"{self.name}: the cell maps {x.shape} to {state.shape}; it "
                "must return the shape of its input."
            )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if not inputs.dtype.is_floating:
            raise TypeError(
                f"{self.name}: input is {inputs.dtype.name}; cast it to a "
                "floating point type first."
            )
        return self._solve(inputs)

    def _solve(self, x: tf.Tensor) -> tf.Tensor:
        row = [-1] + [1] * (len(x.shape) - 1)

        def iterate(h: tf.Tensor, active: tf.Tensor) -> list[tf.Tensor]:
            candidate = tf.cast(self.cell([h, x]), x.dtype)
            # Some cells lose the static shape that a loop variable must keep.
            candidate = tf.ensure_shape(candidate, x.shape)
            changes = _largest_change(candidate, h) > self.tolerance
            h = tf.where(tf.reshape(active, row), candidate, h)
            return [h, tf.logical_and(active, changes)]

        state, _ = tf.while_loop(
            lambda h, active: tf.reduce_any(active),
            iterate,
            [tf.zeros_like(x), tf.fill(tf.shape(x)[:1], True)],
            maximum_iterations=self.maximum_iterations,
        )
        return state

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "cell": keras.saving.serialize_keras_object(self.cell),
            "maximum_iterations": self.maximum_iterations,
            "tolerance": self.tolerance,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FixedPoint":
        # Keras empties the configuration of a Functional model it reads.
        cell = keras.saving.deserialize_keras_object(
            copy.deepcopy(config["cell"])
        )
        return cls(**{**config, "cell": cell})


def _largest_change(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    """Returns the maximum norm of `new - old` of each example, `[B]`.

    A maximum does not depend on the order of its terms, a sum does: the same
    row stops at the same iteration in any batch and on any device.
    """
    wide = new.dtype if new.dtype.size >= 4 else tf.float32
    change = tf.abs(tf.cast(new, wide) - tf.cast(old, wide))
    return tf.reduce_max(change, axis=list(range(1, len(change.shape))))
