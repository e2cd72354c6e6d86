"""What layers do that hold another layer, or a function."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import keras


def can_be_saved(function: Callable[..., Any]) -> bool:
    """Returns whether Keras can write a callable and find it again."""
    if isinstance(function, keras.layers.Layer):
        return True
    if not callable(function) or inspect.isclass(function):
        return False
    name = keras.saving.get_registered_name(function)
    return keras.saving.get_registered_object(name) is not None


def read(config: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns a layer's configuration with one entry made an object again.

    Args:
        config: As `get_config` gave it, with `name` serialized.
        name: The argument that is a layer or a function.
    """
    # Keras empties the configuration of a Functional model it reads.
    inner = keras.saving.deserialize_keras_object(copy.deepcopy(config[name]))
    return {**config, name: inner}
