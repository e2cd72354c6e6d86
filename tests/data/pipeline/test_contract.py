import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import contract
from data.pipeline import prepare
from errors import RequestError
from tests.data.pipeline import datasets

CONFIG = DataConfig(dataset="mine", global_batch_size=4)


def _prepare(module: Any) -> None:
    context = tf.distribute.InputContext()
    prepare.train_dataset(module, CONFIG, context, seed=0, step=0)


@pytest.mark.parametrize("names", [(), ("arrays", "source")])
def test_rejects_other_than_one_kind(names: tuple[str, ...]) -> None:
    module = types.SimpleNamespace(**dict.fromkeys(names, print))

    with pytest.raises(RequestError, match="exactly one"):
        contract.find_kind(module, CONFIG)


def test_rejects_unknown_dimensions() -> None:
    module = types.SimpleNamespace(
        info=lambda config: DatasetInfo(
            task="regression",
            num_examples={"train": 1, "eval": 1},
            features={"a": tf.TensorSpec([None, 3], tf.float32)},
            labels=tf.TensorSpec([], tf.float32),
        )
    )

    with pytest.raises(RequestError, match=r"features a .*\(None, 3\)"):
        contract.load_info(module, CONFIG)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.zeros([8, 3], "f"), np.arange(8), r"features.*\(3,\).*\(2,\)"),
        (np.zeros([8, 2]), np.arange(8), "float64.*float32"),
        (np.zeros([8, 2], "f"), np.arange(7), r"\(7,\).*8 examples"),
        (np.zeros([0, 2], "f"), np.arange(0), r"\(0, 2\).*8 examples"),
        (np.float32(0), np.arange(8), r"shape \(\).*8 examples"),
        ({"a": np.zeros([8, 2], "f")}, np.arange(8), "info says"),
    ],
    ids=["shape", "dtype", "length", "empty", "scalar", "structure"],
)
def test_rejects_arrays_that_differ_from_info(
    features: Any, labels: Any, message: str
) -> None:
    module = datasets.make("arrays", 8)
    module.arrays = lambda config, split: (features, labels)

    with pytest.raises(RequestError, match=message):
        _prepare(module)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (lambda c, s, i: (tf.zeros([3]), i), r"features.*\(3,\).*\(2,\)"),
        (lambda c, s, i: (tf.zeros([2]), 0.0), "labels.*float32.*int64"),
        (lambda c, s, i: tf.zeros([2]), "info says"),
    ],
    ids=["shape", "dtype", "no_pair"],
)
def test_rejects_examples_that_differ_from_info(
    example: Any, message: str
) -> None:
    module = datasets.make("example", 8)
    module.example = example

    with pytest.raises(RequestError, match=message):
        _prepare(module)


def test_rejects_a_source_without_preprocess_that_is_no_pair() -> None:
    module = datasets.make("source", 8)
    del module.preprocess

    with pytest.raises(RequestError, match="info says"):
        _prepare(module)
