"""Model: a few hundred weights, with what replicas may disagree about.

No parameter has a gradient that is zero but for rounding, which Adam would
blow up to steps of its full size: the layer in front of the normalization has
no bias. Activations are smooth, so that no rounding switches a unit.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

import options as options_lib
from model import ModelConfig
from tests.equivalence import digit_words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    normalization: bool = False
    """Whether batches are normalized, with statistics of all replicas."""
    penalty: float = 0.0
    """Factor of the squares of the hidden layer's weights in the loss."""


def build(
    config: ModelConfig, element_spec: Sequence[Any], num_outputs: int
) -> keras.Model:
    chosen = options_lib.parse(config.model_options, Options, "model_options")
    features = element_spec[0]
    inputs = keras.Input(features.shape[1:], dtype=features.dtype.name)
    if features.dtype.is_integer:
        first = keras.layers.Embedding(digit_words.WORDS, 4, name="first")
    else:
        first = keras.layers.Conv2D(
            4, 3, strides=2, activation="elu", name="first"
        )
    x = keras.layers.Flatten(name="flat")(first(inputs))
    x = keras.layers.Dense(
        16,
        use_bias=not chosen.normalization,
        kernel_regularizer=keras.regularizers.L2(chosen.penalty)
        if chosen.penalty
        else None,
        name="hidden",
    )(x)
    if chosen.normalization:
        x = keras.layers.BatchNormalization(
            synchronized=True, name="normalization"
        )(x)
    x = keras.layers.Activation("elu", name="activation")(x)
    outputs = keras.layers.Dense(
        num_outputs,
        dtype=keras.config.dtype_policy().variable_dtype,
        name="outputs",
    )(x)
    return keras.Model(inputs, outputs, name="small")
