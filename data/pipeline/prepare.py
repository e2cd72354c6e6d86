"""One worker's share of a dataset: the order of all steps of preparation.

    order and shuffle → shard → look up or decode → batch
        → weigh classes → augment (both in training only) → prefetch

Sharding comes before anything expensive: a worker decodes and computes only
its own rows. Batches are per-replica batches `(features, labels, weights)` of
static size G / R, dealt as `tf.distribute` hands them out: for each step one
for every replica of this worker. Weights are float32 `[G / R]`, 0 in rows
that only pad an evaluation or were skipped as unreadable, else 1, or what the
dataset and `--class_weights` say, never 0. Pure tf.data; knows no strategy.

W workers (input pipelines), R replicas in all, R / W on each worker, G global
batch size.
"""

import types
from typing import Any

import tensorflow as tf

from data import DataConfig
from data.pipeline import augment
from data.pipeline import class_weights
from data.pipeline import contract
from data.pipeline import decode
from data.pipeline import lookup
from data.pipeline import order
from data.pipeline import stream
from errors import RequestError


def element_spec(module: types.ModuleType, config: DataConfig) -> Any:
    """Describes a batch, `(features, labels, weights)`, of unknown size.

    Reads no data: the module's info says it all. The first to be asked, it
    also refuses what does not fit the dataset.

    Raises:
        RequestError: if info leaves a dimension unknown, or class weights or
            the augmentation cannot be had of such a dataset.
    """
    info = contract.load_info(module, config)
    class_weights.check(module, config, info)
    augment.load(config, info)
    return decode.batch_spec(info, None)


def num_eval_steps(module: types.ModuleType, config: DataConfig) -> int:
    """Counts the steps of one evaluation, the padded last one included."""
    num_examples = contract.load_info(module, config).num_examples["eval"]
    return order.num_eval_steps(num_examples, config.global_batch_size)


def train_dataset(
    module: types.ModuleType,
    config: DataConfig,
    context: tf.distribute.InputContext,
    *,
    seed: int,
    step: int,
) -> tf.data.Dataset:
    """Prepares this worker's endless training batches from `step` on.

    Args:
        module: The dataset.
        config: Its configuration.
        context: Which worker this is, and how many replicas there are.
        seed: Together with the step it fixes the order of examples.
        step: Batches consumed before.

    Raises:
        RequestError: if the module breaks its contract, or if it cannot be
            read as `config` asks.
    """
    info = contract.load_info(module, config)
    if contract.find_kind(module, config) == "source":
        examples = stream.train_examples(
            module, config, context, seed=seed, step=step
        )
        batches = _batch_source(module, config, "train", context, examples)
    else:
        _refuse_files(config)
        size = config.global_batch_size
        indices = order.train_indices(
            info.num_examples["train"], size, seed, step
        )
        weights = tf.data.Dataset.from_tensors(tf.ones([size])).repeat()
        rows = tf.data.Dataset.zip((indices, weights))
        batches = lookup.look_up(module, config, "train", context, rows)
    batches = class_weights.apply(module, config, batches)
    change = augment.load(config, info)
    if change:
        batches = augment.apply(change, batches, context, seed=seed, step=step)
    # Said to be endless, a distributed dataset keeps its static shapes.
    endless = tf.data.experimental.assert_cardinality(
        tf.data.INFINITE_CARDINALITY
    )
    return _finish(batches).apply(endless)


def eval_dataset(
    module: types.ModuleType,
    config: DataConfig,
    context: tf.distribute.InputContext,
) -> tf.data.Dataset:
    """Prepares this worker's batches of one evaluation.

    Every example appears once, with weight 1 unless it was skipped; the last
    step is filled up with rows of weight 0, so every replica has
    `num_eval_steps` full batches.

    Raises:
        RequestError: if the module breaks its contract.
    """
    info = contract.load_info(module, config)
    if contract.find_kind(module, config) == "source":
        examples = stream.eval_examples(module, config, context)
        batches = _batch_source(module, config, "eval", context, examples)
    else:
        rows = order.eval_indices(
            info.num_examples["eval"], config.global_batch_size
        )
        batches = lookup.look_up(module, config, "eval", context, rows)
    return _finish(batches)


def _batch_source(
    module: types.ModuleType,
    config: DataConfig,
    split: str,
    context: tf.distribute.InputContext,
    elements: tf.data.Dataset,
) -> tf.data.Dataset:
    """Turns pairs (element, weight) in row order into per-replica batches."""
    num_local = len(order.local_replicas(context))
    size = config.global_batch_size // context.num_replicas_in_sync
    batches = decode.batch(module, config, split, elements, num_local * size)
    if num_local == 1:
        return batches
    rows = order.by_replica(tf.range(num_local * size)[tf.newaxis], num_local)
    return batches.map(lambda *batch: decode.take(batch, rows[0])).unbatch()


def _finish(batches: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


def _refuse_files(config: DataConfig) -> None:
    if config.shard_by == "files":
        raise RequestError(
            f"--shard_by=files: --dataset={config.dataset} has no files to "
            "share out; use --shard_by=examples."
        )
