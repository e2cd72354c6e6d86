"""A layer that solves symmetric positive definite systems.

Shapes: `B` batch, `K` unknowns, `T` iterations.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from model.layers import _conjugate_directions
from model.layers import _convergence
from model.layers import _inner
from model.layers import _inputs
from model.layers import mat_vec

_PRECONDITIONERS = ("learned", "jacobi", "none")
# Solution `[B, K]` and number of iterations `[B]`, without a gradient.
_Found = tuple[tf.Tensor, tf.Tensor]


@keras.saving.register_keras_serializable(package="keras_template")
class ConjugateGradient(keras.layers.Layer):
    """Solves `A x = b` for each example by conjugate gradients.

    Use it to solve inside a network, or to learn how to: a diagonal
    preconditioner is its one weight.

    Computes, from `x[0] = 0`, the `x[k]` that minimizes `xᵀ A x / 2 - bᵀ x`
    over the directions seen so far, until `|b - A x| <= tolerance · |b|`.

    Reference: Saad (2003), Iterative Methods for Sparse Linear Systems,
    algorithm 9.1, https://www-users.cse.umn.edu/~saad/IterMethBook_2ndEd.pdf.

    Loop invariant: `residual` is `b - A x` and `direction` is A-conjugate to
    those before, for each example that is still iterated; the others are
    frozen, so that no result depends on its batch mates.

    Stopping rule: the Euclidean norm of the residual, carried along, relative
    to that of `b`; the metrics measure it anew: in float32 it ends near 1e-8
    times the condition of `A`. An example also stops, and keeps what it has,
    where `A` proves not positive definite; and where it is no longer a number,
    which stays visible. `A` that is not symmetric is refused outside a graph;
    in one, where no value can be examined, the metrics say what came of it.

    Gradients: implicit. With `A u = dx`, solved by the same iteration, `db =
    u` and `dA = -u xᵀ`; memory does not depend on the iterations, and there is
    no second derivative. A solution does not depend on the preconditioner,
    which learns only from the iterates: `return_iterates` differentiates the
    iterations and keeps them. As `A` is symmetric, only `dA + dAᵀ` counts.

    XLA: compiles forward and backward; all shapes are fixed.

    Metrics: `<name>_iterations`, `<name>_residual`, relative, and
    `<name>_converged`, means over the examples.

    Args:
        maximum_iterations: Bound on the iterations, `T`. Positive; None: 100.
        tolerance: Largest accepted relative residual; if 0,
            `maximum_iterations` must be given.
        preconditioner: `learned`: a diagonal that starts as ones; `jacobi`:
            the inverse diagonal of `A`; `none`.
        matvec: None if `A` comes as a matrix. Otherwise a function, registered
            with Keras, from `A`'s tensor `[B, ...]` and vectors `[B, K]` to
            products `[B, K]`, in plain TensorFlow, linear in the vectors.
        return_iterates: Whether to return all `T` iterates. The iterates of
            an example that has stopped repeat its last.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: A list of `A` and `b`.

    Input shape:
        `[B, K, K]` (with a matvec: `[B, ...]`) and `[B, K]`, floating point.

    Output shape:
        `[B, K]`, or `[B, T, K]`, in the layer's compute dtype. Computed in
        float32 or wider.

    Weights:
        `log_scale` `[K]`, if learned: logarithms of the diagonal.

    Raises:
        ValueError: if an argument is out of its range, the shapes do not fit,
            or, outside a graph, a matrix is not symmetric.
        TypeError: if an input is not floating point.

    Example:
        >>> matrix = tf.constant([[[4.0, 1.0], [1.0, 3.0]]])
        >>> x = ConjugateGradient()([matrix, tf.constant([[1.0, 2.0]])])
        >>> x.numpy().round(4)
        array([[0.0909, 0.6364]], dtype=float32)
    """

    def __init__(
        self,
        *,
        maximum_iterations: int | None = None,
        tolerance: float = 1e-5,
        preconditioner: str = "learned",
        matvec: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
        return_iterates: bool = False,
        **kwargs: Any,
    ) -> None:
        _convergence.check_arguments(maximum_iterations, tolerance)
        if preconditioner not in _PRECONDITIONERS:
            raise ValueError(
                f"preconditioner={preconditioner!r}: must be one of "
                f"{', '.join(_PRECONDITIONERS)}."
            )
        if matvec is not None and not _inner.can_be_saved(matvec):
            raise ValueError(
                f"matvec={matvec!r}: must be a function decorated with "
                "keras.saving.register_keras_serializable."
            )
        if matvec and preconditioner == "jacobi":
            raise ValueError(
                "preconditioner='jacobi': needs the diagonal of a matrix, "
                "which a matvec does not give; use 'learned' or 'none'."
            )
        # Cast in `call`: half precision would be too late to widen.
        super().__init__(**{"autocast": False, **kwargs})
        self.maximum_iterations = maximum_iterations or 100
        self.tolerance = tolerance
        self.preconditioner = preconditioner
        self.matvec = matvec
        self.return_iterates = return_iterates
        self.convergence = _convergence.make_metrics(self.name)

    def build(self, input_shape: Sequence[Sequence[int | None]]) -> None:
        self._check_shapes(input_shape)
        if self.preconditioner == "learned":
            self.log_scale = self.add_weight(
                shape=(input_shape[1][1],),
                initializer="zeros",
                name="log_scale",
            )
        # Outside a graph a tape would record, and keep, every iteration.
        self._graph = tf.function(self._find_only, autograph=False)

    def call(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        operand, vector = self._checked(inputs)
        # The iteration squares: without this, small systems would be zero.
        size = _conjugate_directions.size(vector)
        vector /= size
        if self.return_iterates:
            run, outputs = _conjugate_directions.record(
                *self._arguments(operand, vector)
            )
            iterations, solution = run.iterations, run.solution
            residual = vector - self._times(operand, solution)
            size = size[:, tf.newaxis]
        else:
            solution, iterations = self._find_alone(operand, vector)
            residual = vector - self._times(operand, solution)
            outputs = solution + self._correction(operand, residual)
        relative = tf.math.divide_no_nan(
            tf.norm(residual, axis=-1), tf.norm(vector, axis=-1)
        )
        _convergence.update(
            self.convergence, iterations, relative, self.tolerance
        )
        return tf.cast(size * outputs, self.compute_dtype)

    def _check_shapes(self, shapes: Any) -> None:
        _inputs.check_pair(self.name, shapes, "[A, b]")
        operand, vector = map(tuple, shapes)
        if len(vector) != 2 or vector[1] is None:
            raise ValueError(
                f"{self.name}: b has shape {vector}; it must be [batch, "
                "unknowns] with known unknowns."
            )
        if not self.matvec and operand[1:] != (vector[1],) * 2:
            raise ValueError(
                f"{self.name}: A has shape {operand}; for b of shape {vector} "
                f"it must be [batch, {vector[1]}, {vector[1]}]."
            )

    def _checked(self, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        # Built once, it may be called on other shapes later.
        self._check_shapes([tensor.shape.as_list() for tensor in inputs])
        _inputs.check_floating(self.name, A=inputs[0], b=inputs[1])
        if not self.matvec and tf.executing_eagerly():
            _inputs.check_symmetric(self.name, A=inputs[0])
        wide = tf.as_dtype(self.variable_dtype)
        wide = wide if wide.size >= 4 else tf.float32
        return [tf.cast(tensor, wide) for tensor in inputs]

    def _arguments(self, operand: tf.Tensor, vector: tf.Tensor) -> tuple:
        """Returns those of the functions of `_conjugate_directions`."""
        if self.preconditioner == "learned":
            scale = tf.exp(tf.cast(self.log_scale.value, vector.dtype))
        elif self.preconditioner == "jacobi":
            scale = 1 / tf.linalg.diag_part(operand)
        else:
            scale = tf.ones([], vector.dtype)
        return (
            lambda directions: self._times(operand, directions),
            lambda residual: scale * residual,
            vector,
            self.tolerance,
            self.maximum_iterations,
        )

    def _times(self, operand: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        return (self.matvec or mat_vec.matvec)(operand, vectors)

    def _find_only(self, operand: tf.Tensor, vector: tf.Tensor) -> _Found:
        run = _conjugate_directions.find(*self._arguments(operand, vector))
        return tf.stop_gradient(run.solution), run.iterations

    def _find_alone(self, operand: tf.Tensor, vector: tf.Tensor) -> _Found:
        find = self._graph if tf.executing_eagerly() else self._find_only
        return find(operand, vector)

    def _correction(self, operand: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
        """Returns zeros with the gradient of `A⁻¹ residual`."""

        def zeros(residual: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                size = _conjugate_directions.size(upstream)
                return size * self._find_alone(operand, upstream / size)[0]

            return tf.zeros_like(residual), gradient

        return tf.custom_gradient(zeros)(residual)

    def compute_output_shape(
        self, input_shape: Sequence[Sequence[int | None]]
    ) -> tuple[int | None, ...]:
        batch, unknowns = input_shape[1]
        if self.return_iterates:
            return (batch, self.maximum_iterations, unknowns)
        return (batch, unknowns)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "maximum_iterations": self.maximum_iterations,
            "tolerance": self.tolerance,
            "preconditioner": self.preconditioner,
            "matvec": keras.saving.serialize_keras_object(self.matvec),
            "return_iterates": self.return_iterates,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ConjugateGradient":
        return cls(**_inner.read(config, "matvec"))
