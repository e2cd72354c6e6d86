"""Products of matrices and vectors that are both data.

Shapes: `B` batch, `M` rows, `K` values of a vector, `...` any leading axes.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from model.layers import _inputs


@keras.saving.register_keras_serializable(package="keras_template")
class MatVec(keras.layers.Layer):
    """Multiplies the matrix of each example by its vector.

    Use it where matrices are features, or made by layers before it; where they
    are weights, use `BatchedMatVec`. `matvec` is the same for plain tensors.

    Computes `y[b] = A[b] @ x[b]` as one contraction, and each gradient as
    another: nothing larger than the inputs and the result is made.

    Args:
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: A list of matrices and vectors.

    Input shape:
        `[B, ..., M, K]` and `[B, ..., K]`, floating point.

    Output shape:
        `[B, ..., M]`, in the layer's compute dtype.

    Raises:
        ValueError: if it is not called on two tensors, or their shapes do not
            fit.
        TypeError: if an input is not floating point.

    Example:
        >>> MatVec()([tf.ones([2, 3, 5]), tf.ones([2, 5])]).shape
        TensorShape([2, 3])
    """

    def build(self, input_shape: Sequence[Sequence[int | None]]) -> None:
        _inputs.check_pair(self.name, input_shape, "[matrices, vectors]")
        _check_shapes(self.name, *map(tuple, input_shape))

    def call(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        matrices, vectors = inputs
        _inputs.check_floating(self.name, matrices=matrices, vectors=vectors)
        return matvec(matrices, vectors)

    def compute_output_shape(
        self, input_shape: Sequence[Sequence[int | None]]
    ) -> tuple[int | None, ...]:
        return tuple(input_shape[0][:-1])


def matvec(matrices: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """Returns the product of each matrix and its vector, `[..., M]`.

    Args:
        matrices: `[..., M, K]`, floating point.
        vectors: `[..., K]`, of the same leading axes and dtype.

    Raises:
        ValueError: if the shapes do not fit.
        TypeError: if the dtypes differ, or are not floating point.
    """
    matrices, vectors = map(tf.convert_to_tensor, (matrices, vectors))
    _check_shapes("matvec", tuple(matrices.shape), tuple(vectors.shape))
    _inputs.check_floating("matvec", matrices=matrices, vectors=vectors)
    if matrices.dtype != vectors.dtype:
        raise TypeError(
            f"matvec: matrices are {matrices.dtype.name} and vectors "
            f"{vectors.dtype.name}; cast one to the type of the other."
        )
    rows = row_by_matrix(vectors[..., tf.newaxis, :], matrices, adj_y=True)
    return tf.squeeze(rows, axis=-2)


def row_by_matrix(
    rows: tf.Tensor, matrices: tf.Tensor, **kwargs: Any
) -> tf.Tensor:
    """Returns what `tf.matmul` does, for one row per matrix.

    Args:
        rows: `[..., 1, K]`.
        matrices: `[..., K, M]`.
        **kwargs: `adj_y=True` for matrices `[..., M, K]`.

    Returns:
        `[..., 1, M]`.
    """
    # On a CPU oneDNN takes over the version of this operation that `tf.matmul`
    # uses, and treats a row like a matrix. 3,000 products of 100x100, ms: 5.4
    # here and 6.5 there, with transposed matrices 6.7 and 11. With more than
    # one row oneDNN is twice as fast.
    return tf.raw_ops.BatchMatMulV3(
        x=rows, y=matrices, Tout=rows.dtype, **kwargs
    )


def _check_shapes(
    name: str, matrices: tuple[int | None, ...], vectors: tuple[int | None, ...]
) -> None:
    fits = len(matrices) == len(vectors) + 1 and len(vectors) > 0
    pairs = zip((*matrices[:-2], *matrices[-1:]), vectors, strict=False)
    if not fits or any(
        one != other for one, other in pairs if None not in (one, other)
    ):
        raise ValueError(
            f"{name}: matrices of shape {matrices} and vectors of shape "
            f"{vectors} must be [..., rows, values] and [..., values]."
        )
