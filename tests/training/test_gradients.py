import numpy as np
import pytest
import tensorflow as tf

from data.pipeline import order
from training import gradients as gradients_lib


def test_split_cuts_a_structure_into_equal_parts() -> None:
    batch = ({"a": tf.range(6)}, tf.reshape(tf.range(12), [6, 2]))
    parts = gradients_lib.split(batch, 3)
    assert [part[0]["a"].numpy().tolist() for part in parts] == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]
    assert parts[1][1].numpy().tolist() == [[4, 5], [6, 7]]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_micro_batch_is_the_same_rows_for_any_number_of_replicas(
    replicas,
) -> None:
    dealt = order.by_replica(tf.range(16)[tf.newaxis], replicas)[0]
    for k in range(4):
        rows = [
            row
            for own in tf.unstack(dealt)
            for row in gradients_lib.split(own, 4)[k].numpy()
        ]
        assert sorted(rows) == list(range(4 * k, 4 * k + 4))


def test_add_makes_sparse_gradients_dense_and_keeps_none() -> None:
    sparse = tf.IndexedSlices(
        tf.constant([[1.0], [2.0], [4.0]]), tf.constant([0, 2, 0]), [3, 1]
    )
    first = gradients_lib.add([], [sparse, None])
    both = gradients_lib.add(first, [sparse, None])
    np.testing.assert_array_equal(first[0], [[5], [0], [2]])
    np.testing.assert_array_equal(both[0], [[10], [0], [4]])
    assert first[1] is both[1] is None


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_sum_over_replicas_keeps_the_place_of_none(
    strategy_of, replicas
) -> None:
    strategy = strategy_of(replicas)

    @tf.function(autograph=False)
    def run():
        def replica_fn():
            context = tf.distribute.get_replica_context()
            own = tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
            total = gradients_lib.sum_over_replicas([None, own, 10 * own])
            assert total[0] is None
            return total[1:]

        return strategy.run(replica_fn)

    expected = sum(range(1, replicas + 1))
    for values, factor in zip(run(), (1, 10), strict=True):
        for value in strategy.experimental_local_results(values):
            assert value.numpy() == expected * factor


@pytest.mark.parametrize(("clipnorm", "factor"), [(2.5, 0.5), (50.0, 1.0)])
def test_clip_scales_all_together(clipnorm, factor) -> None:
    gradients = [tf.constant([3.0]), None, tf.constant([[4.0]])]
    clipped = gradients_lib.clip(gradients, clipnorm)
    np.testing.assert_allclose(clipped[0], [3.0 * factor])
    assert clipped[1] is None
    np.testing.assert_allclose(clipped[2], [[4.0 * factor]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_value_is_found(bad) -> None:
    good = [tf.ones([2]), None]
    assert gradients_lib.are_finite(good)
    assert not gradients_lib.are_finite([*good, tf.constant([1.0, bad])])
