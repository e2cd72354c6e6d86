"""Random layers: other numbers on each replica, the same in each rerun.

A Keras layer that draws random numbers keeps a seed and counts it up. Under a
mirrored strategy every replica would hold the same seed and draw the same
mask, and a resumed run would need the seed of each. Here the seeds are set
before every step to a function of (seed of the run, step, replica, layer),
so they need not be saved.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf

_NAME = "seed_generator_state"


def seeds_of(model: keras.Model) -> list[keras.Variable]:
    """Returns the seeds of the random layers, in the order of the layers."""
    return [
        variable
        for variable in model.non_trainable_variables
        if variable.path.rpartition("/")[2] == _NAME
    ]


def reseed(seeds: Sequence[keras.Variable], seed: int, step: tf.Tensor) -> None:
    """Sets the seeds of this replica; call it in replica context.

    Args:
        seeds: From `seeds_of`, uint32 `[2]` each.
        seed: Seed of the run.
        step: Batches consumed before this step, int64 `[]`.
    """
    if not seeds:
        return
    context = tf.distribute.get_replica_context()
    fold_in = tf.random.experimental.stateless_fold_in
    key = fold_in(tf.constant([seed, 0], tf.int64), step)
    key = fold_in(key, tf.cast(context.replica_id_in_sync_group, tf.int64))
    for index, variable in enumerate(seeds):
        bits = fold_in(key, tf.constant(index, tf.int64))
        variable.assign(tf.cast(bits & 0xFFFFFFFF, tf.uint32))
