import types

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import decode
from errors import RequestError

CONFIG = DataConfig(dataset="numbers")


def _module(**members) -> types.ModuleType:
    """Elements are numbers in words; features are pairs, labels the number."""
    module = types.ModuleType("numbers")
    module.info = lambda config: DatasetInfo(
        task="regression",
        num_examples={"train": 6, "eval": 6},
        features=tf.TensorSpec([2], tf.float32),
        labels=tf.TensorSpec([1], tf.float32),
    )
    module.source = None
    module.preprocess = _read
    vars(module).update(members)
    return module


def _read(config: DataConfig, split: str, element: tf.Tensor):
    number = tf.strings.to_number(element)
    # An unknown shape, as decoders of files have.
    pair = tf.py_function(lambda x: tf.stack([x, -x]), [number], tf.float32)
    return pair, number[tf.newaxis]


def _elements(count: int) -> tf.data.Dataset:
    words = [str(number) for number in range(count)]
    weights = np.arange(count, dtype=np.float32)
    return tf.data.Dataset.from_tensor_slices((words, weights))


def test_batches_have_static_shapes_and_keep_their_weights() -> None:
    batches = decode.batch(_module(), CONFIG, "train", _elements(6), 3)
    features, labels, weights = batches.element_spec
    assert (features.shape, labels.shape) == ([3, 2], [3, 1])
    assert weights.shape == [3]
    rows = list(batches.as_numpy_iterator())
    np.testing.assert_array_equal(rows[1][0], [[3, -3], [4, -4], [5, -5]])
    np.testing.assert_array_equal(rows[1][1], [[3], [4], [5]])
    np.testing.assert_array_equal(rows[1][2], [3, 4, 5])


def test_preprocess_knows_config_and_split() -> None:
    seen = []

    def preprocess(config, split, element):
        seen.append((config, split))
        return _read(config, split, element)

    module = _module(preprocess=preprocess)
    decode.batch(module, CONFIG, "eval", _elements(6), 3)
    assert seen == [(CONFIG, "eval")]


def test_examples_that_break_a_promise_are_refused() -> None:
    def preprocess(config, split, element):
        number = tf.strings.to_number(element)
        return tf.stack([number] * 3), number[tf.newaxis]

    module = _module(preprocess=preprocess)
    with pytest.raises(RequestError, match=r"features.*\(3,\).*\(2,\)"):
        decode.batch(module, CONFIG, "train", _elements(6), 3)


def test_take_gathers_rows_of_a_structure() -> None:
    tensors = {"a": tf.range(5), "b": tf.reshape(tf.range(10), [5, 2])}
    taken = decode.take(tensors, tf.constant([4, 0]))
    np.testing.assert_array_equal(taken["a"], [4, 0])
    np.testing.assert_array_equal(taken["b"], [[8, 9], [0, 1]])
