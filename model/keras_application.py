r"""Any of Keras's published architectures, untrained.

    python train.py --model=keras_application \
        --model_options=name=MobileNetV2,resize=32

Features are one image tensor `[B, H, W, 1]` or `[B, H, W, 3]`, values from 0
to 1. Names are those of https://keras.io/api/applications/. Some of them number
their layers in the order of creation (InceptionV3): checkpoints, which go by
name, then fit only if one model is built in a process, as in training.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

import options as options_lib
from errors import RequestError
from model import ModelConfig
from model import _features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of `keras_application`."""

    name: str = "MobileNetV2"
    """Name of a function in `keras.applications`."""
    resize: int = 0
    """Height and width that images are resized to, in pixels; 0: as is."""

    def __post_init__(self) -> None:
        if self.resize < 0:
            raise ValueError(f"resize={self.resize}: must be 0 or more.")


def build(
    config: ModelConfig, element_spec: Sequence[Any], num_outputs: int
) -> keras.Model:
    """Builds the model; see `model` for the arguments.

    Raises:
        RequestError: for a wrong option, features that are no image, or an
            image that is too small for the architecture.
    """
    chosen = options_lib.parse(config.model_options, Options, "model_options")
    architecture = _find(chosen.name)
    if not _features.is_image(element_spec) or (
        element_spec[0].shape[-1] not in (1, 3)
    ):
        raise RequestError(
            "--model=keras_application: needs one feature [height, width, 1 "
            "or 3]; choose another --model or --dataset."
        )
    inputs = _features.make_inputs(element_spec)
    x = _to_rgb(inputs, chosen)
    network = _instantiate(architecture, x.shape[1:], num_outputs)
    outputs = keras.layers.Activation(
        "linear",
        dtype=keras.config.dtype_policy().variable_dtype,
        name="outputs",
    )(network(x))
    return keras.Model(inputs, outputs, name="keras_application")


def _find(name: str) -> Callable[..., keras.Model]:
    architectures = dict(
        inspect.getmembers(keras.applications, inspect.isfunction)
    )
    if name not in architectures:
        close = difflib.get_close_matches(name, architectures, cutoff=0.4)
        raise RequestError(
            f"--model_options: name={name} is no architecture of "
            f"keras.applications; did you mean {' or '.join(close)}?"
            if close
            else f"--model_options: name={name} is no architecture of "
            f"keras.applications; it has {', '.join(architectures)}."
        )
    return architectures[name]


def _to_rgb(inputs: keras.KerasTensor, chosen: Options) -> keras.KerasTensor:
    # EfficientNetB0 to B7 divide by 255 inside and offer no way around it.
    scale = 255.0 if chosen.name.startswith("EfficientNetB") else 1.0
    x = keras.layers.Rescaling(scale, name="scale")(inputs)
    if chosen.resize:
        # Not the layer `Resizing`: its default `training=True` spreads to the
        # layers after it whenever the model is called without `training`.
        x = keras.ops.image.resize(x, (chosen.resize, chosen.resize))
    if x.shape[-1] == 1:
        x = keras.layers.Concatenate(name="rgb")([x, x, x])
    return x


def _instantiate(
    architecture: Callable[..., keras.Model],
    shape: tuple[int, ...],
    num_outputs: int,
) -> keras.Model:
    arguments = {
        "weights": None,
        "input_shape": shape,
        "classes": num_outputs,
        "classifier_activation": None,
    }
    # Where an architecture can scale its input itself, it expects 0 to 255.
    if "include_preprocessing" in inspect.signature(architecture).parameters:
        arguments["include_preprocessing"] = False
    try:
        return architecture(**arguments)
    except ValueError as error:
        raise RequestError(
            f"--model_options: {architecture.__name__} refuses images of "
            f"{shape[0]}x{shape[1]} ({error}); give a larger resize=."
        ) from error
