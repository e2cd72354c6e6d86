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
) -> tf.data.Dataset:
    """Preprocesses and checks single elements, then batches them.

    Args:
        module: The dataset; its `preprocess` is optional.
        config: Its configuration.
        split: `train` or `eval`.
        elements: Pairs (element, weight).
        size: Rows of a batch, B.

    Returns:
        Dataset of (features `[B, ...]`, labels `[B, ...]`, weights `[B]`),
        all of static shape.

    Raises:
        RequestError: if the examples differ from the module's info.
    """
    info = contract.load_info(module, config)
    if hasattr(module, "preprocess"):
        fn = functools.partial(module.preprocess, config, split)
        elements = apply(fn, elements)
    contract.check_example(elements.element_spec[0], info, config)
    spec = batch_spec(info, size)

    def flatten(example: Any, weights: tf.Tensor) -> Any:
        # Decoders often leave a shape unknown that info promises.
        return tf.nest.map_structure(
            lambda tensor, known: tf.ensure_shape(tensor, known.shape),
            (*example, weights),
            spec,
        )

    return elements.batch(size, drop_remainder=True).map(flatten)


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
