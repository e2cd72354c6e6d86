"""From what a dataset module hands out to checked batches.

Works on pairs (element, weight): whatever happens to the element, the weight
stays beside it.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import contract
from data.pipeline import skip
from data.pipeline import weights as weights_lib


def apply(
    fn: Callable[[Any], Any], elements: tf.data.Dataset
) -> tf.data.Dataset:
    """Maps `fn` over the first of each pair (element, weight)."""
    return elements.map(
        lambda element, weight: (fn(element), weight),
        num_parallel_calls=tf.data.AUTOTUNE,
    )


def batch(
    module: types.ModuleType,
    config: DataConfig,
    split: str,
    elements: tf.data.Dataset,
    size: int,
    look_up: Callable[[Any], Any] | None = None,
) -> tf.data.Dataset:
    """Preprocesses and checks single elements, then batches them.

    Args:
        module: The dataset; its `preprocess` is optional.
        config: Its configuration.
        split: `train` or `eval`.
        elements: Pairs (element, weight).
        size: Rows of a batch, B.
        look_up: From index to element, if the elements are indices.

    Returns:
        Dataset of (features `[B, ...]`, labels `[B, ...]`, weights `[B]`),
        all of static shape.

    Raises:
        RequestError: if the examples differ from the module's info.
    """
    info = contract.load_info(module, config)
    spec = batch_spec(info, size)
    if config.skip_bad_examples:
        decode = functools.partial(rows, module, config, split, look_up)
        batches = skip.batch(
            decode, elements, contract.example_spec(info), size
        )
    else:
        decoded = _decode(module, config, split, look_up, elements)
        batches = decoded.batch(size, drop_remainder=True)
    return batches.map(
        lambda example, weights: _ensure(
            weights_lib.join(example, weights), spec
        )
    )


def rows(
    module: types.ModuleType,
    config: DataConfig,
    split: str,
    look_up: Callable[[Any], Any] | None,
    elements: tf.data.Dataset,
) -> tf.data.Dataset:
    """Makes checked examples of single elements, as `batch` does of many.

    Returns:
        Dataset of pairs (example, weight), which fails at an element that is
        no example.

    Raises:
        RequestError: if the examples differ from the module's info.
    """
    info = contract.load_info(module, config)
    spec = contract.example_spec(info)
    decoded = _decode(module, config, split, look_up, elements)
    return apply(lambda example: _ensure(example, spec), decoded)


def batch_spec(info: DatasetInfo, size: int | None) -> Any:
    """Describes a batch of `size` rows: (features, labels, weights)."""
    features, labels = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([size, *spec.shape], spec.dtype),
        (info.features, info.labels),
    )
    return features, labels, tf.TensorSpec([size], tf.float32)


def take(tensors: Any, rows: tf.Tensor) -> Any:
    """Gathers `rows` of every tensor of a structure."""
    return tf.nest.map_structure(
        lambda tensor: tf.gather(tensor, rows), tensors
    )


def _decode(
    module: types.ModuleType,
    config: DataConfig,
    split: str,
    look_up: Callable[[Any], Any] | None,
    elements: tf.data.Dataset,
) -> tf.data.Dataset:
    if look_up:
        elements = apply(look_up, elements)
    if hasattr(module, "preprocess"):
        fn = functools.partial(module.preprocess, config, split)
        elements = apply(fn, elements)
    info = contract.load_info(module, config)
    contract.check_example(elements.element_spec[0], info, config)
    if info.has_weights:
        elements = apply(weights_lib.refuse_bad, elements)
    return elements


def _ensure(tensors: Any, spec: Any) -> Any:
    """Gives tensors the shapes that info promises; decoders often lose them."""
    return tf.nest.map_structure(
        lambda tensor, known: tf.ensure_shape(tensor, known.shape),
        tensors,
        spec,
    )
