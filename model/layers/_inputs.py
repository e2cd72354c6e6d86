"""What layers refuse when they are called."""

import tensorflow as tf


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
