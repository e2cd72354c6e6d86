"""A linear classifier: the least that a model can be.

python train.py --model=linear
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

import options
from model import ModelConfig
from model import _features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of `linear`."""

    use_bias: bool = True
    """Whether outputs have an offset."""


def build(
    config: ModelConfig, element_spec: Sequence[Any], num_outputs: int
) -> keras.Model:
    """Builds the model; see `model` for the arguments."""
    chosen = options.parse(config.model_options, Options, "model_options")
    inputs = _features.make_inputs(element_spec)
    outputs = keras.layers.Dense(
        num_outputs,
        use_bias=chosen.use_bias,
        dtype=keras.config.dtype_policy().variable_dtype,
        name="outputs",
    )(_features.concatenate(inputs))
    return keras.Model(inputs, outputs, name="linear")
