"""A small convolutional network for images.

    python train.py --model=cnn --model_options=filters=32x64

Features are one image tensor `[B, H, W, C]` of any size. There is no batch
normalization, so that replicas need nothing from each other but gradients.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

import options as options_lib
from errors import RequestError
from model import ModelConfig
from model import _features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of `cnn`."""

    filters: tuple[int, ...] = (32, 64)
    """Filters of each convolution, each positive. Every convolution is
    followed by a pooling that halves height and width, rounded up."""
    kernel_size: int = 3
    """Height and width of the filters, in pixels. Positive."""
    dropout: float = 0.0
    """Part of the values dropped before the last layer, in [0, 1)."""

    def __post_init__(self) -> None:
        if min(self.filters, default=1) < 1:
            raise ValueError(f"filters={self.filters}: must be positive.")
        if self.kernel_size < 1:
            raise ValueError(
                f"kernel_size={self.kernel_size}: must be positive."
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}: must be in [0, 1).")


def build(
    config: ModelConfig, element_spec: Sequence[Any], num_outputs: int
) -> keras.Model:
    """Builds the model; see `model` for the arguments.

    Raises:
        RequestError: for a wrong option, or features that are no image.
    """
    chosen = options_lib.parse(config.model_options, Options, "model_options")
    if not _features.is_image(element_spec):
        raise RequestError(
            "--model=cnn: needs one feature [height, width, channels]; choose "
            "another --model or --dataset."
        )
    inputs = _features.make_inputs(element_spec)
    x = _features.to_float("features", inputs)
    for i, filters in enumerate(chosen.filters):
        x = keras.layers.Conv2D(
            filters,
            chosen.kernel_size,
            padding="same",
            activation="relu",
            kernel_initializer="he_normal",
            name=f"conv_{i}",
        )(x)
        # "same" pooling works on an image of any size, 1x1 included.
        x = keras.layers.MaxPooling2D(2, padding="same", name=f"pool_{i}")(x)
    x = keras.layers.Flatten(name="flat")(x)
    if chosen.dropout:
        x = keras.layers.Dropout(chosen.dropout, name="dropout")(x)
    outputs = keras.layers.Dense(
        num_outputs,
        dtype=keras.config.dtype_policy().variable_dtype,
        name="outputs",
    )(x)
    return keras.Model(inputs, outputs, name="cnn")
