import numpy as np
import pytest
import tensorflow as tf

from data.pipeline import order

SIZES = pytest.mark.parametrize(
    ("num_examples", "global_batch_size"),
    [(20, 5), (20, 8), (7, 16), (1, 4), (5, 1)],
    ids=["divides", "spans", "smaller_than_batch", "one_example", "ones"],
)


def _take(dataset: tf.data.Dataset, count: int) -> np.ndarray:
    return np.stack(list(dataset.take(count).as_numpy_iterator()))


@SIZES
def test_every_epoch_is_a_permutation(
    num_examples: int, global_batch_size: int
) -> None:
    dataset = order.train_indices(num_examples, global_batch_size, 3, 0)

    steps = -(-4 * num_examples // global_batch_size)
    chain = _take(dataset, steps).reshape(-1)[: 4 * num_examples]

    epochs = chain.reshape(4, num_examples)
    np.testing.assert_array_equal(
        np.sort(epochs), np.tile(np.arange(num_examples), (4, 1))
    )


def test_epochs_differ() -> None:
    epochs = _take(order.train_indices(50, 50, 0, 0), 3)

    assert len({tuple(epoch) for epoch in epochs}) == 3


@SIZES
@pytest.mark.parametrize("step", [1, 4, 11])
def test_starting_at_a_step_equals_skipping_to_it(
    num_examples: int, global_batch_size: int, step: int
) -> None:
    whole = order.train_indices(num_examples, global_batch_size, 3, 0)
    later = order.train_indices(num_examples, global_batch_size, 3, step)

    np.testing.assert_array_equal(_take(later, 5), _take(whole.skip(step), 5))


def test_starts_far_away_at_once() -> None:
    batch = _take(order.train_indices(10, 5, 0, 10**15), 2)

    np.testing.assert_array_equal(np.sort(batch.reshape(-1)), np.arange(10))


def test_order_depends_on_the_seed_alone() -> None:
    tf.random.set_seed(1)
    first = _take(order.train_indices(50, 10, 7, 0), 10)
    tf.random.set_seed(2)
    again = _take(order.train_indices(50, 10, 7, 0), 10)
    other = _take(order.train_indices(50, 10, 8, 0), 10)

    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_training_batches_have_static_shape() -> None:
    spec = order.train_indices(7, 4, 0, 0).element_spec

    assert spec == tf.TensorSpec([4], tf.int64)


@pytest.mark.parametrize("global_batch_size", [1, 4, 6])
def test_evaluation_counts_every_example_once(global_batch_size: int) -> None:
    for num_examples in range(1, 18):
        dataset = order.eval_indices(num_examples, global_batch_size)

        indices, weights = map(
            np.concatenate, zip(*dataset.as_numpy_iterator(), strict=True)
        )

        steps = order.num_eval_steps(num_examples, global_batch_size)
        assert len(indices) == steps * global_batch_size
        np.testing.assert_array_equal(
            indices[weights == 1], range(num_examples)
        )
        assert weights.sum() == num_examples
        assert (indices < num_examples).all()


@pytest.mark.parametrize("num_replicas", [1, 2, 4])
def test_row_i_goes_to_replica_i_mod_r(num_replicas: int) -> None:
    rows = np.arange(24).reshape(3, 8)

    dealt = order.by_replica(tf.constant(rows), num_replicas).numpy()

    assert dealt.shape == (3, num_replicas, 8 // num_replicas)
    for replica in range(num_replicas):
        np.testing.assert_array_equal(
            dealt[:, replica], rows[:, replica::num_replicas]
        )


def test_workers_share_the_replicas() -> None:
    contexts = [tf.distribute.InputContext(2, worker, 6) for worker in (0, 1)]

    local = [list(order.local_replicas(context)) for context in contexts]

    assert local == [[0, 1, 2], [3, 4, 5]]
