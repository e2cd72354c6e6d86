"""What layers refuse when they are made or called."""

import numbers
from typing import Any

import tensorflow as tf

# Largest |A - Aᵀ| over the largest |A| of what counts as symmetric.
_ASYMMETRY = 1e-4


def is_shape(shape: Any) -> bool:
    """Returns whether it is the shape of one tensor, not of several."""
    if isinstance(shape, tf.TensorShape):
        return True
    return isinstance(shape, (list, tuple)) and all(
        size is None or isinstance(size, numbers.Integral) for size in shape
    )


def is_count(value: Any, least: int) -> bool:
    """Returns whether it is an integer, and no bool, of `least` or more."""
    is_integer = isinstance(value, numbers.Integral)
    return is_integer and not isinstance(value, bool) and value >= least


def check_floating(layer: str, **tensors: tf.Tensor) -> None:
    """Refuses integers, which Keras does not cast.

    Args:
        layer: Name of the layer.
        **tensors: Its inputs by the names that its documentation gives them.

    Raises:
        TypeError: if one is not floating point.
    """
    for name, tensor in tensors.items():
        if not tensor.dtype.is_floating:
            raise TypeError(
                f"{layer}: {name} is {tensor.dtype.name}; cast it to a "
                "floating point type first."
            )


def check_symmetric(layer: str, **matrices: tf.Tensor) -> None:
    """Refuses matrices `[B, K, K]` that are not symmetric, outside a graph.

    Raises:
        ValueError: naming the first.
    """
    ((name, matrix),) = matrices.items()
    difference = tf.abs(matrix - tf.linalg.matrix_transpose(matrix))
    difference = tf.reduce_max(difference, axis=[1, 2])
    largest = tf.reduce_max(tf.abs(matrix), axis=[1, 2])
    for i in tf.where(difference > _ASYMMETRY * largest)[:1, 0]:
        raise ValueError(
            f"{layer}: {name} is not symmetric: matrix {int(i)} differs from "
            f"its transpose by {float(difference[i]):.3g}, its largest value "
            f"is {float(largest[i]):.3g}; if that is meant, use "
            f"({name} + {name}ᵀ) / 2."
        )


def check_pair(layer: str, shapes: Any, names: str) -> None:
    """Refuses shapes that are not a list of two.

    Args:
        layer: Name of the layer.
        shapes: As `build` receives them.
        names: What to call the layer on, such as `[A, b]`.

    Raises:
        ValueError: if they are anything else.
    """
    pair = isinstance(shapes, (list, tuple)) and len(shapes) == 2
    if not pair or not all(map(is_shape, shapes)):
        raise ValueError(f"{layer}: called on {shapes}; call it on {names}.")
