"""Fully connected layers on all features together.

    python train.py --model=mlp --model_options=hidden=256x64,dropout=0.1

Features of any number and shape are flattened and concatenated.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

import options as options_lib
from model import ModelConfig
from model import _features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of `mlp`."""

    hidden: tuple[int, ...] = (128,)
    """Units of each hidden layer, each positive; `hidden=256x64` for two."""
    activation: str = "relu"
    """Activation of the hidden layers, by its Keras name."""
    dropout: float = 0.0
    """Part of the units dropped after each hidden layer, in [0, 1)."""

    def __post_init__(self) -> None:
        if min(self.hidden, default=1) < 1:
            raise ValueError(f"hidden={self.hidden}: must be positive.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}: must be in [0, 1).")
        try:
            keras.activations.get(self.activation)
        except ValueError as error:
            raise ValueError(
                f"activation={self.activation}: must be a function of "
                "keras.activations, such as relu."
            ) from error


def build(
    config: ModelConfig, element_spec: Sequence[Any], num_outputs: int
) -> keras.Model:
    """Builds the model; see `model` for the arguments.

    Raises:
        RequestError: for a wrong option.
    """
    chosen = options_lib.parse(config.model_options, Options, "model_options")
    inputs = _features.make_inputs(element_spec)
    x = _features.concatenate(inputs)
    for i, units in enumerate(chosen.hidden):
        x = keras.layers.Dense(
            units, activation=chosen.activation, name=f"hidden_{i}"
        )(x)
        if chosen.dropout:
            x = keras.layers.Dropout(chosen.dropout, name=f"dropout_{i}")(x)
    outputs = keras.layers.Dense(
        num_outputs,
        dtype=keras.config.dtype_policy().variable_dtype,
        name="outputs",
    )(x)
    return keras.Model(inputs, outputs, name="mlp")
