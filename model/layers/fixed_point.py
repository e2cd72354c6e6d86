"""A layer that solves `h = f(h, x)` by iteration.

Shapes: `B` batch, `...` the axes of one example.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from model.layers import _convergence
from model.layers import _inner
from model.layers import _inputs
from model.layers import _iteration


@keras.saving.register_keras_serializable(package="keras_template")
class FixedPoint(keras.layers.Layer):
    """Iterates a cell until its state no longer changes.

    Use it for a network of unlimited depth with the weights of one layer: an
    equilibrium model, or the steps of a solver.

    Computes `h[0] = 0`, `h[k + 1] = cell([h[k], x])` for each example until
    `max |h[k + 1] - h[k]| <= tolerance` over the values of this example.

    Reference: Bai, Kolter and Koltun (2019), Deep Equilibrium Models,
    https://arxiv.org/abs/1909.01377, equation 2; its implicit gradient is
    that of equation 9. Deviation: both equations are iterated, not solved by
    Broyden's method.

    Loop invariant: `h` holds `h[k]` of the examples that still change; the
    others are frozen, so that an example's result does not depend on its batch
    mates: not by a bit, if the cell computes a row the same way in any batch.

    Stopping rule: the change of one application of the cell, in the unit of
    `h`, as maximum norm over an example, measured in float32 or wider; in half
    precision a step of rounding of the largest value is no change. A norm that
    is not a number stops its example and stays visible in the output.

    Gradients: `implicit` solves `v = dy + Jᵀ v`, where `J` is the derivative
    of the cell by `h` at the result, by the same iteration until `v` changes
    by no more than `tolerance · max |dy|`, and applies the cell's gradient
    once. Its memory does not depend on the number of iterations; it is the
    gradient of the fixed point, so an example should have converged, and the
    cell must be a contraction there. It has no second derivative. `unrolled`
    differentiates the iterations that were made, and keeps all of them.

    XLA: compiles forward and backward if both are in one compiled function;
    that is what the static bound `maximum_iterations` is for.

    Metrics: `<name>_iterations`, `<name>_residual` and `<name>_converged`,
    means over the examples, the last of 1 for an example that has converged.

    Args:
        cell: Any Keras layer or model, called on `[h, x]`, that returns a
            tensor of the shape of `x`. Its variables belong to this layer. It
            must be deterministic and must not update variables but metrics:
            no dropout, no batch normalization, no activity losses. A Functional
            model casts to the dtype of its inputs: give them the compute dtype.
        maximum_iterations: Bound on the iterations, forward and backward.
            Positive; None: 50. An example that has not converged by then
            returns its last state; no error.
        tolerance: Largest accepted change; 0 iterates until nothing changes,
            and `maximum_iterations` must then be given.
        damping: Share of the old state in the new one, in [0, 1). It makes
            some cells converge that would oscillate.
        memory: How many steps Anderson acceleration looks back on;
            0: none. Needs the implicit gradient.
        gradient: `implicit` or `unrolled`.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `x`, constant during the iteration.

    Input shape:
        `[B, ...]`, floating point, two axes or more.

    Output shape:
        That of the input, in the layer's compute dtype.

    Raises:
        ValueError: if an argument is out of its range, the input has fewer
            than two axes, or the cell does not keep the shape and the
            precision of its input.
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
        maximum_iterations: int | None = None,
        tolerance: float = 1e-4,
        damping: float = 0.0,
        memory: int = 0,
        gradient: str = "implicit",
        **kwargs: Any,
    ) -> None:
        _convergence.check_arguments(maximum_iterations, tolerance)
        if not isinstance(cell, keras.layers.Layer):
            raise TypeError(f"cell={cell!r}: must be a Keras layer or model.")
        if gradient not in ("implicit", "unrolled"):
            raise ValueError(
                f"gradient={gradient!r}: must be implicit or unrolled."
            )
        if memory and gradient == "unrolled":
            raise ValueError(
                f"memory={memory}: needs gradient='implicit'; least squares "
                "of residuals near zero have no usable gradient."
            )
        super().__init__(**kwargs)
        self.cell = cell
        self.tolerance = tolerance
        self.gradient = gradient
        self.settings = _iteration.Settings(
            50 if maximum_iterations is None else maximum_iterations,
            damping,
            memory,
        )
        self.convergence = _convergence.make_metrics(self.name)

    def build(self, input_shape: Sequence[int | None]) -> None:
        if not _inputs.is_shape(input_shape) or len(input_shape) < 2:
            raise ValueError(
                f"{self.name}: input shape {input_shape} is not that of one "
                "tensor [batch, ...] of two axes or more."
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
        if getattr(state, "shape", None) != x.shape:
            raise ValueError(
                f"{self.name}: the cell maps {x.shape} to {state}; it must "
                "return one tensor of the shape of its input."
            )
        self._graph = tf.function(self._find_only, autograph=False)

    def call(
        self, inputs: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        _inputs.check_floating(self.name, input=inputs)
        implicit = self.gradient == "implicit"
        # Outside a graph a tape would record, and keep, every iteration.
        alone = self._graph if tf.executing_eagerly() else self._find_only
        found = alone(inputs, training) if implicit else self._find(inputs)
        state = found.state
        # Persistent: the backward pass iterates on the derivative by `state`.
        with tf.GradientTape(
            persistent=True, watch_accessed_variables=False
        ) as tape:
            tape.watch(state)
            outputs = self._apply(state, inputs)
        residual = _iteration.largest_change(outputs, state)
        limit = _iteration.limit(outputs, self.tolerance)
        _convergence.update(self.convergence, found.iterations, residual, limit)
        if implicit:
            outputs = self._with_implicit_gradient(outputs, state, tape)
        return outputs

    def _apply(self, state: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        # Some cells lose the static shape that a loop variable must keep.
        return tf.ensure_shape(tf.cast(self.cell([state, x]), x.dtype), x.shape)

    def _find(self, x: tf.Tensor) -> _iteration.Found:
        return _iteration.find(
            lambda h: self._apply(h, x),
            tf.zeros_like(x),
            self.tolerance,
            self.settings,
        )

    def _find_only(
        self, x: tf.Tensor, training: bool | None
    ) -> _iteration.Found:
        """Finds the state without a gradient."""
        # Keras tells the cell by itself; here it keeps two graphs apart.
        del training
        return _iteration.Found(*map(tf.stop_gradient, self._find(x)))

    def _with_implicit_gradient(
        self, outputs: tf.Tensor, state: tf.Tensor, tape: tf.GradientTape
    ) -> tf.Tensor:
        def gradient(dy: tf.Tensor) -> tf.Tensor:
            def pull_back(v: tf.Tensor) -> tf.Tensor:
                return dy + tape.gradient(outputs, state, output_gradients=v)

            # Relative: the size of a gradient is that of the loss.
            tolerance = self.tolerance * _iteration.largest_change(
                dy, tf.zeros_like(dy)
            )
            found = _iteration.find(pull_back, dy, tolerance, self.settings)
            return tf.raw_ops.PreventGradient(
                input=pull_back(found.state),
                message="a second derivative needs gradient='unrolled'",
            )

        return tf.custom_gradient(lambda y: (tf.identity(y), gradient))(outputs)

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "cell": keras.saving.serialize_keras_object(self.cell),
            **dataclasses.asdict(self.settings),
            "tolerance": self.tolerance,
            "gradient": self.gradient,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FixedPoint":
        return cls(**_inner.read(config, "cell"))
