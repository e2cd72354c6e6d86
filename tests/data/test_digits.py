import hashlib
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import digits
from errors import RequestError

CONFIG = DataConfig(dataset="digits")


def test_file_is_the_one_that_was_described() -> None:
    file = pathlib.Path(digits.__file__).with_name("digits.npz")

    assert hashlib.sha256(file.read_bytes()).hexdigest() == (
        "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"
    )


@pytest.mark.parametrize(
    ("split", "count"), [("train", 1438), ("eval", 359)], ids=["train", "eval"]
)
def test_arrays_are_what_info_says(split: str, count: int) -> None:
    info = digits.info(CONFIG)

    features, labels = digits.arrays(CONFIG, split)

    assert info.num_examples[split] == count
    assert features.shape == (count, *info.features.shape)
    assert features.dtype == info.features.dtype == tf.float32
    assert features.min() == 0
    assert features.max() == 1
    assert labels.shape == (count,)
    assert labels.dtype == info.labels.dtype == tf.int32
    assert set(labels) == set(range(info.num_classes))


def test_every_fifth_example_is_held_out() -> None:
    with np.load(pathlib.Path(digits.__file__).with_name("digits.npz")) as file:
        images, all_labels = file["images"], file["labels"]

    features, labels = digits.arrays(CONFIG, "eval")
    train_features, _ = digits.arrays(CONFIG, "train")

    np.testing.assert_array_equal(features[..., 0] * 16, images[4::5])
    np.testing.assert_array_equal(labels, all_labels[4::5])
    np.testing.assert_array_equal(train_features[4, ..., 0] * 16, images[5])


def test_rejects_an_argument() -> None:
    with pytest.raises(RequestError, match=r"--dataset=digits:x.*no argument"):
        digits.info(DataConfig(dataset="digits:x"))
