"""Variables that the forward pass itself changes, such as moving means.

Each replica changes its own copy by what it sees. After every step the copies
are replaced by their mean, so that evaluation and checkpoints do not depend on
which replica is read. Those of a layer that synchronizes by itself
(`synchronized=True` of Keras's batch normalization) are equal already; they
are among them so that a skipped step can take them back.
"""

from collections.abc import Iterator

import keras
import tensorflow as tf


def statistics_of(model: keras.Model) -> list[keras.Variable]:
    """Returns the floating point variables that layers update by themselves.

    Frozen weights are not among them: nothing changes those.
    """
    return [
        variable
        for layer in layers(model)
        for variable in layer._non_trainable_variables
        if tf.as_dtype(variable.dtype).is_floating
    ]


def communicates(model: keras.Model) -> bool:
    """Returns whether a layer talks to other replicas in its forward pass."""
    return any(getattr(layer, "synchronized", False) for layer in layers(model))


def layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Returns every layer, those inside others and nested models included."""
    # Not public, like what a layer made as not trainable: the public
    # properties mix in frozen weights and leave out wrapped layers. Tests pin
    # both.
    return model._flatten_layers()
