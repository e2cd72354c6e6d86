import types

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import sample
from tests.data.pipeline import datasets

CONFIG = DataConfig(dataset="mine", global_batch_size=8)


@pytest.mark.parametrize("kind", datasets.KINDS)
@pytest.mark.parametrize(
    ("asked", "found"), [(3, 3), (99, 20)], ids=["some", "all"]
)
def test_reads_the_first_of_eval(kind, asked, found) -> None:
    module = datasets.make(kind, 5, num_eval=20)
    features, labels = sample.first(module, CONFIG, asked)
    numbers = np.arange(found)
    np.testing.assert_array_equal(np.abs(labels), numbers)
    np.testing.assert_array_equal(features, np.stack([numbers, numbers], 1))


def test_leaves_out_what_cannot_be_read() -> None:
    module = datasets.make("source", 5, num_eval=20, bad=[1])
    config = DataConfig(
        dataset="mine", global_batch_size=8, skip_bad_examples=9
    )
    _, labels = sample.first(module, config, 4)
    assert labels.numpy().tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("side", "found"), [(1000, 4), (3000, 1)], ids=["four", "at least one"]
)
def test_takes_no_more_than_16_mib(side, found) -> None:
    spec = tf.TensorSpec([side, side], tf.float32)
    label = tf.TensorSpec([], tf.float32)
    module = types.SimpleNamespace(
        info=lambda config: DatasetInfo(
            task="regression",
            num_examples={"train": 9, "eval": 9},
            features=spec,
            labels=label,
        ),
        example=lambda config, split, index: (
            tf.zeros([side, side]),
            tf.cast(index, tf.float32),
        ),
    )
    _, labels = sample.first(module, CONFIG, 9)
    assert labels.numpy().tolist() == list(range(found))
