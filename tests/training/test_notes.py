import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainConfig
from training import notes
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib


def test_norm_is_of_all_together() -> None:
    tensors = [tf.constant([3.0, 0.0]), None, tf.constant(4.0, tf.float64)]
    assert float(notes.norm(tensors)) == 5.0


@pytest.mark.parametrize(
    ("value", "finite", "may_skip", "mean"),
    [
        (2.0, True, True, 2.0),
        (2.0, False, True, 2.0),
        (np.nan, False, True, 0.0),
        (np.nan, False, False, np.nan),
    ],
    ids=["applied", "skipped", "skipped_without_loss", "never_skipped"],
)
def test_loss_of_a_skipped_step(value, finite, may_skip, mean) -> None:
    metric = keras.metrics.Mean(name="loss")
    notes.loss(metric, tf.constant(value), tf.constant(finite), may_skip)
    assert np.array_equal(metric.result(), mean, equal_nan=True)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_gradient_norm_is_that_of_a_first_step(strategy_of, replicas) -> None:
    """Loss w·v, v = 1..8: the gradient is the mean of v, whatever w is."""
    strategy = strategy_of(replicas)
    config = TrainConfig(steps_per_loop=3, global_clipnorm=1.0)
    with strategy.scope():
        inputs = keras.Input([1])
        dense = keras.layers.Dense(1, use_bias=False, name="dense")
        state = state_lib.create(keras.Model(inputs, dense(inputs)), config)
    task = task_lib.Task(lambda labels, outputs: outputs[:, 0], lambda: [])
    loop = step_lib.make_train_loop(strategy, state, task, 4, config)
    rows = np.array([[1], [2], [3], [4], [5], [6], [7], [8]], np.float32)
    weights = np.ones(8, np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((rows, rows, weights))
    dataset = dataset.batch(4, drop_remainder=True).repeat()
    iterator = iter(strategy.experimental_distribute_dataset(dataset))

    def train(steps: int) -> float:
        logs = loop(iterator, tf.constant(steps, tf.int64))
        return float(logs["gradient_norm"].numpy())

    # Steps 0 to 2, then step 3, then steps 4 and 5, of which none is a first.
    assert train(3) == pytest.approx(2.5)
    assert train(1) == pytest.approx(6.5)
    assert np.isnan(train(2))
