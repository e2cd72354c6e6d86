import importlib

import pytest

from benchmarks import _images
from data import tfds as tfds_data


def test_writes_the_digits_enlarged(tmp_path) -> None:
    config = _images.write(tmp_path)
    info = tfds_data.info(config)
    assert info.num_examples == {"train": 1438, "eval": 359}
    assert info.features.shape == (28, 28, 1)
    element = next(iter(tfds_data.source(config, "train", (0, 1))))
    image, label = tfds_data.preprocess(config, "train", element)
    assert 0 <= int(label) < 10
    assert float(image[2:5, 5:8].numpy().std()) == 0
    assert float(image.numpy().max()) > 0.9


@pytest.mark.parametrize("name", ["images", "tfrecord"])
def test_writes_them_as_plain_files(tmp_path, name) -> None:
    config = _images.write_files(tmp_path, name)
    info = importlib.import_module(f"data.{name}").info(config)
    assert info.num_examples == {"train": 1438, "eval": 359}
    assert info.features.shape == (28, 28, 1)
    assert info.num_classes == 10
