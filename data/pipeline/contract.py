"""Holds a dataset module to the contract in `data/__init__.py`.

A module that breaks its promise is refused here, by name, instead of failing
somewhere inside a compiled step.
"""

import types
from typing import Any

import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from errors import RequestError

_KINDS = ("arrays", "example", "source")


def find_kind(module: types.ModuleType, config: DataConfig) -> str:
    """Finds how `module` hands out examples: arrays, example or source.

    Raises:
        RequestError: unless the module has exactly one of the three.
    """
    found = [name for name in _KINDS if hasattr(module, name)]
    if len(found) != 1:
        raise RequestError(
            f"--dataset={config.dataset}: the module defines "
            f"{' and '.join(found) or 'none'} of arrays, example and source; "
            "define exactly one of them."
        )
    return found[0]


def load_info(module: types.ModuleType, config: DataConfig) -> DatasetInfo:
    """Asks `module` for its info and checks that all shapes are static.

    Raises:
        RequestError: if a dimension of features or labels is unknown.
    """
    info = module.info(config)
    for name, spec in _named(info):
        if not spec.shape.is_fully_defined():
            raise RequestError(
                f"--dataset={config.dataset}: info says that {name} have "
                f"shape {spec.shape}; every dimension must be known."
            )
    return info


def check_example(received: Any, info: DatasetInfo, config: DataConfig) -> None:
    """Compares one example with what the module's info says of it.

    Args:
        received: What `example_spec` describes, `tf.TensorSpec`s or tensors
            of one example.
        info: What the module promised.
        config: For the message.

    Raises:
        RequestError: if structure, shape or dtype differ.
    """
    promised = example_spec(info)
    try:
        tf.nest.assert_same_structure(promised, received)
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"--dataset={config.dataset}: an example is {received}, but info "
            f"says {_names(info)} = {promised}; make them agree."
        ) from error
    found = tf.nest.flatten(received)
    for (name, spec), tensor in zip(_named(info), found, strict=True):
        fits = tensor.shape.is_compatible_with(spec.shape)
        if not fits or tensor.dtype != spec.dtype:
            raise RequestError(
                f"--dataset={config.dataset}: {name} of an example are "
                f"{tensor.dtype.name} {tensor.shape}, but info says "
                f"{spec.dtype.name} {spec.shape}; make them agree."
            )


def check_arrays(
    arrays: Any, num_examples: int, split: str, config: DataConfig
) -> None:
    """Checks that all arrays hold the `num_examples` that info says.

    Args:
        arrays: `(features, labels)`, and weights if info says so, tensors
            with the examples first.
        num_examples: What the module's info says of this split.
        split: For the message.
        config: For the message.

    Raises:
        RequestError: naming the first length that differs.
    """
    for array in tf.nest.flatten(arrays):
        if array.shape.rank == 0 or array.shape[0] != num_examples:
            raise RequestError(
                f"--dataset={config.dataset}: an array of split {split} has "
                f"shape {array.shape}, but info says {num_examples} examples; "
                "put them along the first axis."
            )


def example_spec(info: DatasetInfo) -> tuple[Any, ...]:
    """Describes an example: (features, labels), or with a weight `[]`."""
    if info.has_weights:
        return info.features, info.labels, tf.TensorSpec([], tf.float32)
    return info.features, info.labels


def _names(info: DatasetInfo) -> str:
    if info.has_weights:
        return "(features, labels, weight)"
    return "(features, labels)"


def _named(info: DatasetInfo) -> list[tuple[str, tf.TensorSpec]]:
    """Lists the specs with their names, in the order of `tf.nest.flatten`."""
    features, *others = example_spec(info)
    named = [("features", features)]
    if isinstance(features, dict):
        named = sorted(
            (f"features {key}", spec) for key, spec in features.items()
        )
    return [*named, *zip(("labels", "weights"), others, strict=False)]
