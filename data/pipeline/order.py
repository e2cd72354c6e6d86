"""Which example is at which step, and which replica gets it.

Training reads an endless chain of epochs: positions 0, 1, 2, … of which
position p is place p % N of epoch p // N, and epoch e is a permutation of all
N examples that depends on (seed, e) alone. Step s takes positions s·G to
(s + 1)·G - 1, so batches span epochs, nothing is dropped, and a run resumes
at any step. Nothing here depends on the number of workers or replicas.

N examples, G global batch size, R replicas.
"""

import tensorflow as tf

# Functions of a `map` are rewritten by AutoGraph, which none of these needs
# and which took a tenth of a second at the start of a run.
plain = tf.autograph.experimental.do_not_convert


def train_indices(
    num_examples: int, global_batch_size: int, seed: int, step: int
) -> tf.data.Dataset:
    """Lists the examples of every step from `step` on, without end.

    Starting costs the same at any step: one permutation.

    Returns:
        Dataset of int64 `[G]`.
    """
    first_epoch, place = divmod(step * global_batch_size, num_examples)

    def permutation(epoch: tf.Tensor) -> tf.Tensor:
        return tf.random.experimental.stateless_shuffle(
            tf.range(num_examples, dtype=tf.int64), seed=[seed, epoch]
        )

    @plain
    def unread(epoch: tf.Tensor) -> tf.Tensor:
        skipped = place * tf.cast(epoch == first_epoch, tf.int64)
        return permutation(epoch)[skipped:]

    # Without end for all purposes, and unlike `counter` without a function.
    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    # Prefetch hides the shuffle of a large set (8 ms for 1.28 M examples).
    return (
        epochs.map(unread)
        .prefetch(1)
        .rebatch(global_batch_size, drop_remainder=True)
    )


def eval_indices(num_examples: int, global_batch_size: int) -> tf.data.Dataset:
    """Lists every example once, in order; the last step is padded.

    Returns:
        Dataset of ceil(N / G) pairs: indices, int64 `[G]`, and weights `[G]`,
        which are 0 where a row only pads (with example 0), else 1.
    """

    @plain
    def rows(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        positions = step * global_batch_size + tf.range(
            global_batch_size, dtype=tf.int64
        )
        exists = positions < num_examples
        indices = tf.where(exists, positions, 0)
        return indices, tf.cast(exists, tf.float32)

    steps = num_eval_steps(num_examples, global_batch_size)
    return tf.data.Dataset.range(steps).map(rows)


def num_eval_steps(num_examples: int, global_batch_size: int) -> int:
    """Counts the steps that read every example once."""
    return -(-num_examples // global_batch_size)


def local_replicas(context: tf.distribute.InputContext) -> range:
    """Lists the replicas that one worker feeds: an equal, connected part."""
    count = context.num_replicas_in_sync // context.num_input_pipelines
    first = context.input_pipeline_id * count
    return range(first, first + count)


def by_replica(rows: tf.Tensor, num_replicas: int) -> tf.Tensor:
    """Deals rows to replicas like cards: row i goes to replica i mod R.

    So the first half of every replica's rows is the first half of the global
    batch for every R: micro-batches are the same whatever the replicas.

    Args:
        rows: `[K, G]`, K steps of rows; R divides G.
        num_replicas: R.

    Returns:
        `[K, R, G / R]`.
    """
    size = rows.shape[1] // num_replicas
    dealt = tf.reshape(rows, [-1, size, num_replicas])
    return tf.linalg.matrix_transpose(dealt)
