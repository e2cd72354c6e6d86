import functools
import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data import digits
from data import linear_systems
from data.pipeline import class_weights
from data.pipeline import prepare
from errors import RequestError
from tests.data.pipeline import layouts

LABELS = np.array([0, 0, 0, 0, 0, 0, 2, 2, 3, 0], np.int32)


def _module(labels: np.ndarray = LABELS) -> types.SimpleNamespace:
    """Four classes, of which class 1 does not occur."""
    return types.SimpleNamespace(
        info=lambda config: DatasetInfo(
            task="classification",
            num_examples={"train": len(labels), "eval": len(labels)},
            features=tf.TensorSpec([1], tf.float32),
            labels=tf.TensorSpec([], tf.int32),
            num_classes=4,
        ),
        arrays=lambda config, split: (
            labels[:, np.newaxis].astype(np.float32),
            labels,
        ),
    )


def _config(weights: str, size: int = 4) -> DataConfig:
    return DataConfig(
        dataset="mine", global_batch_size=size, class_weights=weights
    )


def test_balanced_is_n_over_k_times_the_count() -> None:
    table = class_weights.table(_module(), _config("balanced"))

    np.testing.assert_allclose(table, [10 / 21, 1, 10 / 6, 10 / 3], rtol=1e-6)
    # So the examples weigh 1 on the average.
    assert table[LABELS].mean() == pytest.approx(1)


def test_balances_the_digits() -> None:
    config = DataConfig(class_weights="balanced")
    _, labels = digits.arrays(config, "train")

    table = class_weights.table(digits, config)

    counts = [(labels == number).sum() for number in range(10)]
    np.testing.assert_allclose(table * counts, [143.8] * 10, rtol=1e-6)


def test_classes_that_are_not_named_weigh_1() -> None:
    table = class_weights.table(_module(), _config("0:0.5,3:2"))

    np.testing.assert_array_equal(table, [0.5, 1, 1, 2])


@pytest.mark.parametrize(("num_workers", "num_replicas"), [(1, 1), (2, 4)])
def test_every_training_row_has_the_weight_of_its_class(
    num_workers: int, num_replicas: int
) -> None:
    table = np.array([0, 1, 1, 2.5], np.float32)
    prepared = functools.partial(
        prepare.train_dataset, _module(), _config("0:0,3:2.5"), seed=3, step=2
    )

    batches = layouts.global_batches(prepared, num_workers, num_replicas, 5)

    for _, labels, weights in batches:
        np.testing.assert_allclose(weights, table[labels], atol=1e-37)
        # An example that weighs nothing is none that could not be read.
        assert (weights > 0).all()


def test_evaluation_weighs_all_the_same() -> None:
    dataset = prepare.eval_dataset(
        _module(), _config("balanced", 10), tf.distribute.InputContext()
    )

    (batch,) = dataset.as_numpy_iterator()

    np.testing.assert_array_equal(batch[2], np.ones(10))


def test_labels_known_in_advance_will_do() -> None:
    module = _module()
    arrays = module.arrays
    del module.arrays
    module.example = lambda config, split, index: (tf.zeros([1]), index)
    module.labels = lambda config, split: arrays(config, split)[1]

    table = class_weights.table(module, _config("balanced"))

    np.testing.assert_allclose(table[3], 10 / 3, rtol=1e-6)


def _labelled(labels: np.ndarray) -> types.SimpleNamespace:
    module = _module(labels)
    del module.arrays
    module.example = lambda config, split, index: (tf.zeros([1]), index)
    module.labels = lambda config, split: labels
    return module


@pytest.mark.parametrize("weights", ["balanced", "0:2"])
@pytest.mark.parametrize("bad", [-1, 4])
@pytest.mark.parametrize("make", [_module, _labelled])
def test_refuses_a_label_that_is_no_class(
    make: Any, bad: int, weights: str
) -> None:
    labels = np.array([0, 3, bad, 1, bad], np.int32)

    with pytest.raises(
        RequestError,
        match=f"--class_weights={weights}: the label of example 2 .*"
        f"is {bad}; its classes are 0 to 3",
    ):
        class_weights.table(make(labels), _config(weights))


def _preprocessed() -> types.SimpleNamespace:
    module = _module()
    module.preprocess = lambda config, split, element: element
    return module


@pytest.mark.parametrize(
    ("module", "weights", "message"),
    [
        (linear_systems, "0:1", "does not give each example one class"),
        (_module(), "1:1,4:2", "no class 4; --dataset=mine has 0 to 3"),
        (_preprocessed(), "balanced", "not known before they are read"),
    ],
    ids=["regression", "class", "unknown"],
)
def test_refused_before_anything_is_read(
    module: Any, weights: str, message: str
) -> None:
    dataset = "linear_systems" if module is linear_systems else "mine"
    config = DataConfig(dataset=dataset, class_weights=weights)

    with pytest.raises(RequestError, match=f"--class_weights=.*{message}"):
        prepare.element_spec(module, config)
