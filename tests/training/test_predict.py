import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import distribute
from data.pipeline import prepare
from training.predict import predict


def _numbers(count: int) -> types.ModuleType:
    """A dataset of the rows 1, 2, …, `count`."""
    module = types.ModuleType("numbers")
    rows = np.arange(1, count + 1, dtype=np.float32)[:, None]
    spec = tf.TensorSpec([1], tf.float32)
    module.info = lambda config: DatasetInfo(
        task="regression",
        num_examples={"train": count, "eval": count},
        features=spec,
        labels=spec,
    )
    module.arrays = lambda config, split: (rows, rows)
    return module


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("count", [8, 9])
def test_predictions_come_in_order(strategy_of, replicas, count) -> None:
    """The model doubles; an uneven last batch is padded and cut."""
    strategy = strategy_of(replicas)
    with strategy.scope():
        inputs = keras.Input([1])
        layer = keras.layers.Rescaling(2.0)
        model = keras.Model(inputs, {"twice": layer(inputs), "same": inputs})
    config = DataConfig(global_batch_size=4)
    dataset = distribute.eval_dataset(strategy, _numbers(count), config)
    steps = prepare.num_eval_steps(_numbers(count), config)
    outputs = predict(strategy, model, dataset, steps)
    expected = np.arange(1, count + 1, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(outputs["twice"], 2 * expected)
    np.testing.assert_array_equal(outputs["same"], expected)
