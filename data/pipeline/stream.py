"""One worker's share of a `source`: which elements of the stream are its own.

A source can only be read from its start. An epoch is the stream shuffled with
a buffer of `SHUFFLE_BUFFER_EXAMPLES` undecoded elements, seeded by (seed,
epoch): a full permutation if all examples of the split fit into the buffer,
else a local one. Resuming reads and drops what the epoch had given before.

With `shard_by=examples` each worker reads the whole stream and keeps, still
undecoded, the rows of its own replicas, so the order is the same for every
number of workers. With `shard_by=files` each worker trains on its own files
only and chains its own epochs; that order depends on the number of workers.

With `skip_bad_examples` what a source cannot read keeps its place in the
stream. Files of a worker's own are the exception: nobody knows how many
examples a damaged one held, so it ends the run. Examples that cannot be
decoded are skipped everywhere.
"""

import types

import tensorflow as tf

from data import DataConfig
from data.pipeline import order
from data.pipeline import skip
from errors import RequestError

SHUFFLE_BUFFER_EXAMPLES = 16_384


def train_examples(
    module: types.ModuleType,
    config: DataConfig,
    context: tf.distribute.InputContext,
    *,
    seed: int,
    step: int,
) -> tf.data.Dataset:
    """Reads this worker's training elements from `step` on, without end.

    Returns:
        Dataset of (element of the source, weight 1.0), in row order.

    Raises:
        RequestError: with `shard_by=files`, if this worker's files are empty
            (or fewer than the workers: raised by the source).
    """
    position = step * config.global_batch_size
    weights = tf.data.Dataset.from_tensors(1.0).repeat()
    if reads_own_files(config, context):
        source = own_files(module, config, context)
        # How many examples the files hold is known only by counting; a fresh
        # run does not need to know.
        num_examples = _count(source) if step else 1
        position //= context.num_input_pipelines
        elements = _epochs(source, num_examples, seed, position)
        return tf.data.Dataset.zip((elements, weights))
    num_examples = module.info(config).num_examples["train"]
    source = whole(module, config, "train")
    elements = _epochs(source, num_examples, seed, position)
    return _own_rows(_weigh(elements, weights, config), context)


def eval_examples(
    module: types.ModuleType,
    config: DataConfig,
    context: tf.distribute.InputContext,
) -> tf.data.Dataset:
    """Reads this worker's elements of one evaluation, each example once.

    Always by example: files of unequal size would give the workers unequal
    numbers of steps.

    Returns:
        Dataset of (element of the source, weight), in row order; the last
        step is filled up with elements of weight 0.
    """
    num_examples = module.info(config).num_examples["eval"]
    steps = order.num_eval_steps(num_examples, config.global_batch_size)
    padding = steps * config.global_batch_size - num_examples
    weights = tf.data.Dataset.from_tensors(1.0).repeat(num_examples)
    no_weights = tf.data.Dataset.from_tensors(0.0).repeat(padding)
    # Real examples are the only padding that any `preprocess` can decode.
    elements = whole(module, config, "eval").repeat()
    weights = weights.concatenate(no_weights)
    return _own_rows(_weigh(elements, weights, config), context)


def reads_own_files(
    config: DataConfig, context: tf.distribute.InputContext
) -> bool:
    """Returns whether this worker trains on files of its own."""
    return config.shard_by == "files" and context.num_input_pipelines > 1


def whole(
    module: types.ModuleType, config: DataConfig, split: str
) -> tf.data.Dataset:
    """Reads all files in their order.

    Returns:
        Dataset of elements, or of pairs (element, weight) where bad ones are
        skipped. It fails at the end if there are not as many as info says.
    """
    num_examples = module.info(config).num_examples[split]
    source = module.source(config, split, (0, 1))
    if config.skip_bad_examples:
        source = skip.keep_places(source, num_examples)
    return source.apply(tf.data.experimental.assert_cardinality(num_examples))


def own_files(
    module: types.ModuleType,
    config: DataConfig,
    context: tf.distribute.InputContext,
) -> tf.data.Dataset:
    """Reads the training files of this worker.

    Raises:
        RequestError: if they are empty.
    """
    worker, num_workers = context.input_pipeline_id, context.num_input_pipelines
    source = module.source(config, "train", (worker, num_workers))
    # An endless chain of empty epochs would be waited for without end.
    if _count(source.take(1)) == 0:
        raise RequestError(
            f"--shard_by=files: the files of worker {worker} of {num_workers} "
            "hold no example; use --shard_by=examples."
        )
    return source


def _weigh(
    elements: tf.data.Dataset, weights: tf.data.Dataset, config: DataConfig
) -> tf.data.Dataset:
    """Returns pairs (element, weight); one that was lost weighs nothing."""
    rows = tf.data.Dataset.zip((elements, weights))
    if not config.skip_bad_examples:
        return rows
    return rows.map(lambda pair, weight: (pair[0], pair[1] * weight))


def _epochs(
    source: tf.data.Dataset, num_examples: int, seed: int, position: int
) -> tf.data.Dataset:
    """Chains shuffled epochs of `source` from `position` on."""
    first_epoch, place = divmod(position, num_examples)

    def unread(epoch: tf.Tensor) -> tf.data.Dataset:
        # Concerns this function's graph alone. Without it, the order would
        # also depend on the seed of the whole program.
        tf.random.set_seed(1)
        own_seed = tf.random.stateless_uniform(
            [], [seed, epoch], maxval=tf.int64.max, dtype=tf.int64
        )
        shuffled = source.shuffle(
            SHUFFLE_BUFFER_EXAMPLES,
            seed=own_seed,
            reshuffle_each_iteration=False,
        )
        skipped = place * tf.cast(epoch == first_epoch, tf.int64)
        return shuffled.skip(skipped)

    return tf.data.Dataset.counter(first_epoch, dtype=tf.int64).flat_map(unread)


def _own_rows(
    rows: tf.data.Dataset, context: tf.distribute.InputContext
) -> tf.data.Dataset:
    """Keeps, in order, the rows of this worker's replicas."""
    if context.num_input_pipelines == 1:
        return rows
    # The replicas divide the global batch, so a row's replica follows from
    # its position in the stream.
    num_replicas = context.num_replicas_in_sync
    local = order.local_replicas(context)

    def is_own(position: tf.Tensor, _: object) -> tf.Tensor:
        replica = position % num_replicas
        return (replica >= local.start) & (replica < local.stop)

    return rows.enumerate().filter(is_own).map(lambda _, row: row)


def _count(source: tf.data.Dataset) -> int:
    """Counts elements, by reading them if they do not say how many."""
    cardinality = int(source.cardinality())
    if cardinality >= 0:
        return cardinality
    return int(source.reduce(0, lambda count, _: count + 1))
