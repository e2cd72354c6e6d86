"""What a replica's program is, read in its StableHLO."""

import re

import numpy as np
import pytest
import tensorflow as tf

from rehearsal import execute
from rehearsal import lower
from rehearsal.replicas import StandInStrategy

# The private parts in `replicas` are of these versions.
VERSIONS = ("2.20", "2.21")


def lowered(strategy: StandInStrategy, function: object) -> str:
    traced = tf.function(
        lambda x: strategy.run(function, (x,)), jit_compile=True
    )
    make = traced.experimental_get_compiler_ir(tf.TensorSpec([3]))
    return make(stage="stablehlo")


def test_the_version_of_tensorflow_is_known() -> None:
    assert tf.__version__.startswith(VERSIONS)


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_counts_replicas_and_devices(replicas: int) -> None:
    strategy = StandInStrategy(replicas, 4)
    assert strategy.num_replicas_in_sync == replicas
    assert (
        strategy.run(
            lambda: tf.distribute.get_replica_context().num_replicas_in_sync
        )
        == replicas
    )


@pytest.mark.parametrize(
    ("op", "divides"),
    [(tf.distribute.ReduceOp.SUM, False), (tf.distribute.ReduceOp.MEAN, True)],
    ids=["sum", "mean"],
)
def test_a_reduction_is_one_of_all_replicas(
    op: tf.distribute.ReduceOp, divides: bool
) -> None:
    def reduce(x: tf.Tensor) -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(op, x)

    module = lowered(StandInStrategy(4, 1), reduce)
    assert "replica_groups = dense<[[0, 1, 2, 3]]>" in module
    assert len(re.findall("all_reduce", module)) == 1
    assert ("stablehlo.divide" in module) == divides


def test_float64_is_summed_bit_for_bit() -> None:
    """On two devices, by what the operation does take: integers."""
    strategy = StandInStrategy(2, 1)

    def reduce(x: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        x *= tf.cast(context.replica_id_in_sync_group + 1, x.dtype)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, x)

    lowered_step = lower.lower(
        lambda x: strategy.run(reduce, (x,)),
        tf.TensorSpec([2], tf.float64),
        {},
        [],
    )
    x = np.array([np.pi, -1e-300])
    ran = execute.execute(lowered_step, [[np.repeat(x, 2)]], 2, 1)
    # Rows go to the replicas in turn, so both have the same.
    np.testing.assert_array_equal(ran.losses[0], x + 2 * x)


def test_the_number_of_a_replica_is_not_known_before_it_runs() -> None:
    def number(x: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        return x + tf.cast(context.replica_id_in_sync_group, x.dtype)

    assert "stablehlo.replica_id" in lowered(StandInStrategy(2, 1), number)


def test_a_gradient_passes_through_a_reduction() -> None:
    def differentiate(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            context = tf.distribute.get_replica_context()
            y = context.all_reduce(tf.distribute.ReduceOp.SUM, x**2)
        return tape.gradient(y, x)

    module = lowered(StandInStrategy(2, 1), differentiate)
    assert "stablehlo.all_reduce" in module
