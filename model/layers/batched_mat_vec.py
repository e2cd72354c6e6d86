"""One learned matrix per group of features.

Shapes: `B` batch, `...` any further leading axes, `N` groups, `K` values of a
group, `M` units.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import placement
from model.layers import _inputs
from model.layers.mat_vec import row_by_matrix


@keras.saving.register_keras_serializable(package="keras_template")
class BatchedMatVec(keras.layers.Layer):
    """Multiplies each vector of an example by a learned matrix of its own.

    Use it instead of `Dense` when the `N` groups of an example must not share
    weights; with `shared=True` it is `Dense` with the same interface.

    Computes `y[b, n] = activation(W[n] @ x[b, n] + c[n])` for all `b` and `n`
    as one product of two stacks of `N` matrices, forward and backward: nothing
    of the size of one matrix per example is ever made.

    Args:
        units: Length `M` of each output vector. Positive.
        use_bias: Whether to add `c`.
        activation: Anything `keras.activations.get` accepts; None: linear.
        shared: Whether all groups use one matrix and one bias.
        split_groups: Whether the devices that work on one replica share the
            groups among them (`placement.split`); elsewhere nothing changes.
        kernel_initializer: Called once for each matrix, with shape `[K, M]`,
            so that its fans are those of one matrix, and with another seed
            for each.
        bias_initializer: Called once for each group, with shape `[M]`.
        kernel_regularizer: Receives the whole kernel.
        bias_regularizer: Receives the whole bias.
        kernel_constraint: Receives the whole kernel; axis -2 is the input's.
        bias_constraint: Receives the whole bias.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: The vectors.

    Input shape:
        `[B, ..., N, K]`, floating point. `N` and `K` must be known when the
        layer is built.

    Output shape:
        `[B, ..., N, M]`, in the layer's compute dtype.

    Weights:
        `kernel` `[N, K, M]`, where `kernel[n]` is the transpose of `W[n]`, and
        `bias` `[N, M]`; `[K, M]` and `[M]` if shared.

    Raises:
        ValueError: if `units` is not a positive integer, groups that share
            their matrix are to be split, the input has fewer than three axes,
            or `N` or `K` is unknown.
        TypeError: if the input is not floating point.

    Example:
        >>> layer = BatchedMatVec(units=4)
        >>> layer(tf.zeros([2, 3, 5])).shape
        TensorShape([2, 3, 4])
    """

    def __init__(
        self,
        units: int,
        *,
        use_bias: bool = True,
        activation: Any = None,
        shared: bool = False,
        split_groups: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(units, int) or units < 1:
            raise ValueError(f"units={units!r}: must be a positive integer.")
        if shared and split_groups:
            raise ValueError(
                "split_groups=True: groups that share a matrix (shared=True) "
                "cannot be split; choose one of the two."
            )
        super().__init__(**kwargs)
        self.units = units
        self.use_bias = use_bias
        self.activation = keras.activations.get(activation)
        self.shared = shared
        self.split_groups = split_groups
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def build(self, input_shape: Sequence[int | None]) -> None:
        if len(input_shape) < 3 or None in input_shape[-2:]:
            raise ValueError(
                f"{self.name}: input shape {tuple(input_shape)} is not "
                "[batch, ..., groups, values] with known groups and values."
            )
        groups, length = input_shape[-2:]
        per_group = not self.shared
        self.kernel = self.add_weight(
            shape=(groups, length, self.units)[not per_group :],
            initializer=_each(self.kernel_initializer, per_group),
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name="kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(groups, self.units)[not per_group :],
                initializer=_each(self.bias_initializer, per_group),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                name="bias",
            )
        self.input_spec = keras.layers.InputSpec(
            min_ndim=3, axes={-2: groups, -1: length}
        )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        _inputs.check_floating(self.name, input=inputs)
        flat = tf.reshape(inputs, [-1, *inputs.shape[-2:]])
        if self.shared:
            rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
            outputs = tf.matmul(rows, self.kernel)
        elif flat.shape[0] == 1:
            outputs = row_by_matrix(
                tf.reshape(flat, [-1, 1, flat.shape[2]]), self.kernel
            )
        else:
            # Two transposes around a product of [N, B, K] and [N, K, M]. Best
            # compromise of seven forms; ms forward and backward, 2 CPU cores:
            #   N, K = M, B            8, 8, 64  3000, 100, 1  64, 64, 256
            #   this one                 0.7          41           8.2
            #   einsum bnk,nkm->bnm      0.7         100          11
            #   einsum ...nk,nkm->...nm  0.8         189         317
            #   tf.linalg.matvec         0.7          58         138
            by_group = self._split(tf.transpose(flat, [1, 0, 2]))
            outputs = tf.matmul(by_group, self._split(self.kernel))
            outputs = tf.transpose(self._split(outputs), [1, 0, 2])
        outputs = tf.reshape(outputs, self._output_shape_of(inputs))
        if self.bias is not None:
            outputs += self.bias
        return self.activation(outputs)

    def _split(self, by_group: tf.Tensor) -> tf.Tensor:
        """Splits axis 0, the groups', if asked to."""
        if not self.split_groups:
            return by_group
        return placement.split(tf.convert_to_tensor(by_group), axis=0)

    def _output_shape_of(self, inputs: tf.Tensor) -> Any:
        shape = [*inputs.shape[:-1], self.units]
        if shape.count(None) > 1:
            return tf.concat([tf.shape(inputs)[:-1], [self.units]], 0)
        # Known when it is traced, apart from one: nothing to compute.
        return [-1 if size is None else size for size in shape]

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "activation": keras.activations.serialize(self.activation),
            "shared": self.shared,
            "split_groups": self.split_groups,
            "kernel_initializer": serialize(self.kernel_initializer),
            "bias_initializer": serialize(self.bias_initializer),
            "kernel_regularizer": serialize(self.kernel_regularizer),
            "bias_regularizer": serialize(self.bias_regularizer),
            "kernel_constraint": serialize(self.kernel_constraint),
            "bias_constraint": serialize(self.bias_constraint),
        }


def _each(
    initializer: keras.initializers.Initializer, per_group: bool
) -> Callable[..., tf.Tensor]:
    """Returns an initializer that draws each group by a call of its own.

    Keras takes the leading axes of a shape for the window of a convolution,
    and would divide the variance of `[N, K, M]` by `N`.
    """
    if not per_group:
        return initializer

    def draw(shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        copies = _differently_seeded(initializer, shape[0])
        return tf.stack([copy(shape[1:], dtype=dtype) for copy in copies])

    return draw


def _differently_seeded(
    initializer: keras.initializers.Initializer, num_copies: int
) -> list[Callable[..., tf.Tensor]]:
    # An initializer with an integer seed returns the same at every call.
    seed = getattr(initializer, "seed", None)
    if not isinstance(seed, int):
        return [initializer] * num_copies
    config = initializer.get_config()
    seeds = np.random.default_rng(seed).integers(2**31, size=num_copies)
    return [
        initializer.from_config({**config, "seed": int(seed)}) for seed in seeds
    ]
