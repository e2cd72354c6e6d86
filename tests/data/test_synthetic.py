import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import synthetic
from errors import RequestError


def _config(argument: str) -> DataConfig:
    return DataConfig(dataset=f"synthetic:{argument}")


@pytest.mark.parametrize(
    ("argument", "shape", "train", "held_out"),
    [
        ("", (28, 28, 1), 4096, 512),
        ("shape=5,classes=3,examples=40", (5,), 40, 5),
        ("shape=2x3,classes=0,examples=4", (2, 3), 4, 1),
    ],
    ids=["default", "vector", "regression"],
)
def test_arrays_are_what_info_says(
    argument: str, shape: tuple[int, ...], train: int, held_out: int
) -> None:
    config = _config(argument)
    info = synthetic.info(config)

    assert info.features.shape == shape
    assert info.num_examples == {"train": train, "eval": held_out}
    for split, count in info.num_examples.items():
        features, labels = synthetic.arrays(config, split)
        assert features.shape == (count, *shape)
        assert features.dtype == info.features.dtype == tf.float32
        assert labels.shape == (count, *info.labels.shape)
        assert labels.dtype == info.labels.dtype


def test_labels_are_a_fixed_function_of_the_features() -> None:
    config = _config("shape=4x5,classes=0,examples=160")
    flat, labels = {}, {}
    for split in ("train", "eval"):
        features, labels[split] = synthetic.arrays(config, split)
        flat[split] = features.reshape(-1, 20).astype(np.float64)

    fit, *_ = np.linalg.lstsq(flat["train"], labels["train"], rcond=None)

    np.testing.assert_allclose(flat["eval"] @ fit, labels["eval"], atol=1e-5)


def test_classes_all_occur_and_follow_the_features() -> None:
    config = _config("shape=6,classes=3,examples=3000")

    features, labels = synthetic.arrays(config, "train")

    assert set(labels) == {0, 1, 2}
    # An argmax of linear functions is the same for a point and its double.
    means = [features[labels == c].mean(axis=0) for c in range(3)]
    nearest = np.argmax(features @ np.transpose(means), axis=1)
    assert np.mean(nearest == labels) > 0.8


def test_numbers_never_change_and_splits_differ() -> None:
    config = _config("shape=3,examples=16")

    first, _ = synthetic.arrays(config, "train")
    np.random.seed(5)
    again, _ = synthetic.arrays(config, "train")
    held_out, _ = synthetic.arrays(config, "eval")

    np.testing.assert_array_equal(first, again)
    assert not np.isin(held_out, first).any()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("shape=3x0", "shape=3x0.*1 or more"),
        ("classes=1", "classes=1.*2 or more"),
        ("classes=-2", "classes=-2"),
        ("examples=0", "examples=0.*1 or more"),
        ("size=3", "unknown key 'size'"),
        ("shape=a", "shape=a is not integers"),
    ],
)
def test_rejects_bad_options(argument: str, message: str) -> None:
    with pytest.raises(RequestError, match=f"--dataset.*{message}"):
        synthetic.info(_config(argument))
