"""A few examples to look at, the same at every evaluation."""

import dataclasses
import math
import types
from typing import Any

import tensorflow as tf

from data import DataConfig
from data.pipeline import contract
from data.pipeline import prepare

_MAX_BYTES = 2**24


def first(
    module: types.ModuleType, config: DataConfig, num_examples: int
) -> tuple[Any, Any]:
    """Reads the first examples of split `eval` on this worker alone.

    Args:
        module: The dataset.
        config: Its configuration.
        num_examples: How many, at most. There are fewer if the split is
            smaller, some cannot be read, or their features exceed 16 MiB.

    Returns:
        `(features, labels)`, tensors `[N, …]`.

    Raises:
        RequestError: if the module breaks its contract.
    """
    info = contract.load_info(module, config)
    example = sum(
        math.prod(spec.shape) * spec.dtype.size
        for spec in tf.nest.flatten(info.features)
    )
    fitting = max(1, _MAX_BYTES // max(1, example))
    size = min(num_examples, info.num_examples["eval"], fitting)
    one_batch = dataclasses.replace(config, global_batch_size=size)
    context = tf.distribute.InputContext()
    batches = prepare.eval_dataset(module, one_batch, context)
    features, labels, weights = next(iter(batches))
    return tf.nest.map_structure(
        lambda tensor: tf.boolean_mask(tensor, weights > 0), (features, labels)
    )
