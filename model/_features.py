"""What every model does first: from the specs of a batch to one tensor."""

from collections.abc import Sequence
from typing import Any

import keras

# A KerasTensor, or a dict of them: the structure of the features.
Inputs = Any


def make_inputs(element_spec: Sequence[Any]) -> Inputs:
    """Returns the `keras.Input`s of the features of `element_spec`."""
    features = element_spec[0]
    if not isinstance(features, dict):
        return _input("features", features)
    return {key: _input(key, spec) for key, spec in sorted(features.items())}


def is_image(element_spec: Sequence[Any]) -> bool:
    """Whether there is one feature, of axes height, width and channels."""
    features = element_spec[0]
    return not isinstance(features, dict) and len(features.shape) == 4


def concatenate(inputs: Inputs) -> keras.KerasTensor:
    """Flattens each feature and joins them in the order of their names.

    Returns:
        `[B, F]`, in the compute dtype of the global policy.
    """
    if not isinstance(inputs, dict):
        return _flat("features", inputs)
    flat = [_flat(key, inputs[key]) for key in sorted(inputs)]
    return keras.layers.Concatenate(name="concatenate")(flat)


def to_float(name: str, inputs: keras.KerasTensor) -> keras.KerasTensor:
    """Casts integers, which Keras does not cast by itself."""
    return keras.layers.Rescaling(1.0, name=f"{name}_float")(inputs)


def _input(name: str, spec: Any) -> keras.KerasTensor:
    return keras.Input(spec.shape[1:], dtype=spec.dtype.name, name=name)


def _flat(name: str, inputs: keras.KerasTensor) -> keras.KerasTensor:
    flatten = keras.layers.Flatten(name=f"{name}_flat")
    return flatten(to_float(name, inputs))
