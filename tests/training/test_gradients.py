import contextlib

import numpy as np
import pytest
import tensorflow as tf

from data.pipeline import order
from training import gradients as gradients_lib


@pytest.mark.parametrize("fails", [False, True])
def test_apart_sums_nothing_while_inside(strategy_of, fails) -> None:
    strategy = strategy_of(2)

    def total() -> list[float]:
        def replica_fn() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            own = tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
            return gradients_lib.sum_over_replicas([own])[0]

        return [
            float(each)
            for each in strategy.experimental_local_results(
                strategy.run(replica_fn)
            )
        ]

    assert total() == [3, 3]
    with contextlib.suppress(ZeroDivisionError), gradients_lib.apart():
        assert total() == [1, 2]
        if fails:
            raise ZeroDivisionError
    assert total() == [3, 3]


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


@pytest.mark.parametrize("compression", ["none", "bfloat16"])
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_only_gradients_of_several_replicas_are_rounded(
    strategy_of, replicas, compression
) -> None:
    strategy = strategy_of(replicas)
    # bfloat16 has no number between 1 and 1 + 1/128.
    value = 1 + 1 / 1024

    @tf.function(autograph=False)
    def run():
        def replica_fn():
            own = tf.constant([value])
            gradients, (other,) = gradients_lib.exchange(
                [None, own], [own], compression
            )
            assert gradients[0] is None
            assert gradients[1].dtype == tf.float32
            return gradients[1], other

        return strategy.run(replica_fn)

    gradient, other = run()
    rounds = compression == "bfloat16" and replicas > 1
    for each in strategy.experimental_local_results(gradient):
        assert each.numpy() == replicas * (1 if rounds else value)
    for each in strategy.experimental_local_results(other):
        assert each.numpy() == replicas * value


def test_an_overflow_stays_one_when_compressed(strategy_of) -> None:
    """A gradient times the loss scale may be anything that float32 holds."""
    strategy = strategy_of(2)

    @tf.function(autograph=False)
    def run():
        def replica_fn():
            own = tf.constant([3e38, np.nan, 1e38])
            return gradients_lib.exchange([own], [], "bfloat16")[0][0]

        return strategy.run(replica_fn)

    for each in strategy.experimental_local_results(run()):
        infinite, missing, large = each.numpy()
        assert np.isinf(infinite)
        assert np.isnan(missing)
        assert large == pytest.approx(2e38, rel=1e-2)


def test_packs_on_cpus(strategy_of, monkeypatch) -> None:
    options = []
    context = tf.distribute.ReplicaContext
    all_reduce = context.all_reduce

    def note(self, op, value, given=None):
        options.append(given)
        return all_reduce(self, op, value, given)

    monkeypatch.setattr(context, "all_reduce", note)
    strategy_of(2).run(
        lambda: gradients_lib.sum_over_replicas([tf.ones([2])])[0]
    )
    assert {given.bytes_per_pack for given in options} == {4 * 2**20}


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
