"""A layer that applies a function to every slice along an axis.

Shapes: `N` slices, `...` the axes of one slice.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from model.layers import _inner
from model.layers import _inputs

_METHODS = ("auto", "sequential", "vectorized")
# From one slice to one tensor. A layer is one too.
_Function = Callable[[tf.Tensor], tf.Tensor]


@keras.saving.register_keras_serializable(package="keras_template")
class ParallelMap(keras.layers.Layer):
    """Applies one function to every slice of its input along an axis.

    Use it for a function that takes no batch.

    Computes `y[n] = function(x[n])`, where `n` counts along the axis, which a
    slice does not have, and stacks the results along the same axis.

    Reference: Agarwal and Ganichev (2019), Auto-vectorizing TensorFlow graphs,
    https://arxiv.org/abs/1903.04243, is what `tf.vectorized_map` does.

    Loop invariant: the buffer of `tf.map_fn` holds the results so far; no
    slice sees that of another. A chain of states cannot be mapped, nor overlap.

    Stopping rule: `N` iterations, none if vectorized. NaN stays in its slice.

    Gradients flow through both ways, and XLA compiles them. Two limits: it
    refuses a loop within the function once that is vectorized, which only its
    compiler notices (take "sequential"); it ignores `parallel_iterations`.

    Time of "sequential" ÷ that of "vectorized", with `parallel_iterations` 1
    and 10; two CPU cores, float32, 256 slices of 400 values:

                                      graph        XLA        eager
        product with a 400×400 matrix  3.5   3.3   1.4   1.4    4.1   4.1
        tanh(x) * x                    4.1   4.3   0.9   0.9    7.6   7.5
        loop of 0 to 48 iterations     9.7    11   fails         11    19

    So vectorize as a graph and eagerly; XLA's own loop is as good for cheap
    functions. `parallel_iterations` brought nothing, nor for 32 singular value
    decompositions, 100×100. Eager calls trace every time: wrap the model in a
    `tf.function`. Name the axes of `tf.norm` and `tf.squeeze`: with one slice,
    vectorized, TensorFlow 2.21 takes its axis away otherwise.

    Args:
        function: From one tensor to one tensor: a Keras layer, whose variables
            then belong to this layer, or a callable registered by
            `keras.saving.register_keras_serializable`. It must not update
            variables, once or `N` times by the method, nor add losses.
            `tf.random.normal` and the like draw for each slice. A layer with a
            seed of its own, such as `Dropout`, draws once for all slices if
            vectorized and for each slice if not.
        axis: Of the input; negative ones count from its end.
        method: "vectorized", `tf.vectorized_map`; "sequential", `tf.map_fn`;
            or "auto": vectorized if TensorFlow can do that to every operation
            of the function, which shows when it is traced, else sequential.
        parallel_iterations: How many iterations may overlap if sequential.
            Positive. The results are the same.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: The slices, one or more.
        training: Handed on to the function if that is a layer.

    Input shape:
        Any that has the axis, of any type.

    Output shape:
        That of one result with the axis put back; the type of the results.

    Raises:
        ValueError: if `function` is not registered, `method` not one of the
            three, `parallel_iterations` not a positive integer, the input
            lacks the axis or has no slices, a result has fewer axes than come
            before it, or an operation cannot be vectorized as asked.
        TypeError: if `function` is not callable or returns anything but one
            tensor, or `axis` is not an integer.

    Example:
        >>> layer = ParallelMap(keras.layers.Dense(4))
        >>> layer(tf.zeros([2, 3, 5])).shape
        TensorShape([2, 3, 4])
    """

    def __init__(
        self,
        function: _Function,
        *,
        axis: int = 1,
        method: str = "auto",
        parallel_iterations: int = 10,
        **kwargs: Any,
    ) -> None:
        if not callable(function):
            raise TypeError(f"function={function!r}: must be callable.")
        if not _inner.can_be_saved(function):
            raise ValueError(
                f"function={function!r}: must be a Keras layer or decorated "
                "with keras.saving.register_keras_serializable."
            )
        if not isinstance(axis, int):
            raise TypeError(f"axis={axis!r}: must be an integer.")
        if method not in _METHODS:
            raise ValueError(f"method={method!r}: must be one of {_METHODS}.")
        if not _inputs.is_count(parallel_iterations, 1):
            raise ValueError(
                f"parallel_iterations={parallel_iterations!r}: must be a "
                "positive integer."
            )
        super().__init__(**kwargs)
        self.function = function
        self.axis = axis
        self.method = method
        self.parallel_iterations = parallel_iterations

    def build(self, input_shape: Sequence[int | None]) -> None:
        if not _inputs.is_shape(input_shape):
            raise ValueError(
                f"{self.name}: called on {input_shape}; call it on one tensor."
            )
        # A symbolic call makes the variables of a layer here, whatever kind
        # of layer it is: inside the map it would be too late.
        self.compute_output_shape(input_shape)

    def call(
        self, inputs: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        # Keras hands `training` on to the function by itself.
        axis = self._axis(inputs.shape)
        others = [i for i in range(inputs.shape.rank) if i != axis]
        slices = tf.transpose(inputs, [axis, *others])
        # This trace fails on whatever is wrong with the function itself.
        spec = _result(self.function, slices.shape[1:], slices.dtype)
        self._stacked(spec.shape, slices.shape[0], axis)
        outputs = self._map(slices, spec)
        after = range(axis + 1, outputs.shape.rank)
        return tf.transpose(outputs, [*range(1, axis + 1), 0, *after])

    def _map(self, slices: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
        if self.method != "sequential":
            try:
                return _map_vectorized(self.function, slices)
            except ValueError:
                # So says `tf.vectorized_map`: it cannot vectorize.
                if self.method == "vectorized":
                    raise
        return tf.map_fn(
            self.function,
            slices,
            parallel_iterations=self.parallel_iterations,
            fn_output_signature=spec,
        )

    def compute_output_spec(
        self, inputs: keras.KerasTensor, training: bool | None = None
    ) -> keras.KerasTensor:
        axis = self._axis(inputs.shape)
        shape = (*inputs.shape[:axis], *inputs.shape[axis + 1 :])
        if isinstance(self.function, keras.layers.Layer):
            spec = self.function(keras.KerasTensor(shape, inputs.dtype))
        else:
            spec = _result(self.function, shape, inputs.dtype)
        shape = self._stacked(spec.shape, inputs.shape[axis], axis)
        return keras.KerasTensor(shape, tf.as_dtype(spec.dtype).name)

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        inputs = keras.KerasTensor(input_shape, self.compute_dtype)
        return self.compute_output_spec(inputs).shape

    def _axis(self, shape: Sequence[int | None]) -> int:
        rank = len(shape)
        if not -rank <= self.axis < rank:
            raise ValueError(
                f"{self.name}: input of shape {shape} has no axis {self.axis}."
            )
        if shape[self.axis] == 0:
            raise ValueError(
                f"{self.name}: input of shape {shape} has no slices along axis "
                f"{self.axis}; it must have one or more."
            )
        return self.axis % rank

    def _stacked(
        self, shape: Sequence[int | None], num_slices: int | None, axis: int
    ) -> tuple[int | None, ...]:
        if axis > len(shape):
            raise ValueError(
                f"{self.name}: results of shape {tuple(shape)} cannot be "
                f"stacked along axis {axis}; take an axis further to the left."
            )
        return (*shape[:axis], num_slices, *shape[axis:])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "function": keras.saving.serialize_keras_object(self.function),
            "axis": self.axis,
            "method": self.method,
            "parallel_iterations": self.parallel_iterations,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ParallelMap":
        return cls(**_inner.read(config, "function"))


def _trace(function: _Function, *spec: Any) -> Any:
    """Returns the graph of `function` of a tensor of this shape and type.

    Not a call of it: TensorFlow would warn that it traces anew each time.
    """
    traced = tf.function(function, autograph=False)
    return traced.get_concrete_function(tf.TensorSpec(*spec))


def _result(function: _Function, *spec: Any) -> tf.TensorSpec:
    """Returns what `function` makes of a tensor of this shape and type."""
    traced = _trace(function, *spec)
    if not isinstance(traced.output_dtypes, tf.DType):
        raise TypeError(
            f"function={function!r} returns {traced.output_dtypes}; it must "
            "return one tensor."
        )
    return tf.TensorSpec(traced.output_shapes, traced.output_dtypes)


def _map_vectorized(function: _Function, slices: tf.Tensor) -> tf.Tensor:
    def map_all(slices: tf.Tensor) -> tf.Tensor:
        return tf.vectorized_map(function, slices, fallback_to_while_loop=False)

    # In a graph of its own, of which nothing is left if it cannot be made.
    return _trace(map_all, slices.shape, slices.dtype)(slices)
