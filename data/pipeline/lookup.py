"""Batches by index, for datasets that give any example at any time.

That is `arrays`, gathered whole batches at a time, and `example`, computed
one by one.
"""

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import contract
from data.pipeline import decode
from data.pipeline import order
from data.pipeline import weights as weights_lib

# Looking up several steps at once costs less than each alone (measured: 1.3
# times the examples/s), as long as little memory waits.
_STEPS_PER_LOOKUP = 8
_MAX_LOOKUP_BYTES = 2**24


def look_up(
    module: types.ModuleType,
    config: DataConfig,
    split: str,
    context: tf.distribute.InputContext,
    rows: tf.data.Dataset,
) -> tf.data.Dataset:
    """Turns pairs (indices `[G]`, weights `[G]`) into per-replica batches."""
    info = contract.load_info(module, config)
    own = order.local_replicas(context)
    size = config.global_batch_size // context.num_replicas_in_sync

    def share(step_rows: tf.Tensor) -> tf.Tensor:
        dealt = order.by_replica(step_rows, context.num_replicas_in_sync)
        return tf.reshape(dealt[:, own.start : own.stop], [-1, size])

    @order.plain
    def shares_of(*steps: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(map(share, steps))

    shares = rows.batch(_steps_per_lookup(info, config)).map(shares_of)
    look_up = by_index(module, config, split)
    if hasattr(module, "arrays") and not hasattr(module, "preprocess"):
        # Whole batches at a time, and nothing in it can fail.
        return shares.map(
            order.plain(
                lambda index, weights: weights_lib.join(look_up(index), weights)
            )
        ).unbatch()
    elements = shares.unbatch().unbatch()
    return decode.batch(module, config, split, elements, size, look_up)


def by_index(
    module: types.ModuleType, config: DataConfig, split: str
) -> Callable[[tf.Tensor], Any]:
    """Returns TensorFlow code: index → element, before any `preprocess`."""
    if hasattr(module, "arrays"):
        return functools.partial(
            decode.take, _load_arrays(module, config, split)
        )
    return functools.partial(module.example, config, split)


def _load_arrays(
    module: types.ModuleType, config: DataConfig, split: str
) -> Any:
    """Loads what the module has as tensors and checks them."""
    info = contract.load_info(module, config)
    # Tensors, which a dataset refers to; arrays would be copied into its
    # graph. On the host, because that is where datasets run.
    with tf.device("cpu:0"):
        arrays = tf.nest.map_structure(
            tf.convert_to_tensor, module.arrays(config, split)
        )
    contract.check_arrays(arrays, info.num_examples[split], split, config)
    if not hasattr(module, "preprocess"):
        example = tf.nest.map_structure(lambda array: array[0], arrays)
        contract.check_example(example, info, config)
        if info.has_weights:
            weights_lib.check_array(arrays[2], split, config)
    return arrays


def _steps_per_lookup(info: DatasetInfo, config: DataConfig) -> int:
    specs = tf.nest.flatten((info.features, info.labels))
    example = sum(math.prod(spec.shape) * spec.dtype.size for spec in specs)
    lookup = _STEPS_PER_LOOKUP * config.global_batch_size * example
    return _STEPS_PER_LOOKUP if lookup <= _MAX_LOOKUP_BYTES else 1
