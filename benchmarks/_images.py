"""A small set of images, in files: of tensorflow-datasets, or simple ones.

The digits of `data/digits.py`, enlarged to 28×28 and stored as PNG: as large,
and as hard to decode, as those of MNIST.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from data import DataConfig
from data import digits

NAME = "enlarged"


# mypy does not know the keyword, which its base class takes.
class Enlarged(  # type: ignore[call-arg]
    tfds.core.GeneratorBasedBuilder, skip_registration=True
):
    """The builder; `train` and `test` are the digits' own."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(
                        shape=(28, 28, 1), encoding_format="png"
                    ),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, manager: Any) -> dict[str, Any]:
        return {
            "train": self._generate_examples("train"),
            "test": self._generate_examples("eval"),
        }

    def _generate_examples(
        self, split: str
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, (image, label) in enumerate(_enlarged(split)):
            yield index, {"image": image, "label": label}


def write(folder: Path) -> DataConfig:
    """Writes the set below `folder`; returns what reads it."""
    tfds.disable_progress_bar()
    Enlarged(data_dir=folder).download_and_prepare()
    return DataConfig(dataset=f"tfds:{NAME}", data_dir=str(folder))


def write_files(folder: Path, name: str) -> DataConfig:
    """Writes it as the dataset `images` or `tfrecord` reads it."""
    for split in ("train", "eval"):
        (folder / split).mkdir(parents=True)
        encoded = [
            (tf.io.encode_png(image).numpy(), label)
            for image, label in _enlarged(split)
        ]
        if name == "images":
            _write_images(folder / split, encoded)
        else:
            _write_records(folder / split / "digits.tfrecord", encoded)
    classes = "" if name == "images" else ",classes=10"
    return DataConfig(dataset=f"{name}:{folder},size=28x28,channels=1{classes}")


def _enlarged(split: str) -> Iterator[tuple[np.ndarray, int]]:
    features, labels = digits.arrays(DataConfig(), split)
    images = np.rint(255 * features).astype(np.uint8)
    images = np.repeat(np.repeat(images, 3, axis=1), 3, axis=2)
    images = np.pad(images, [(0, 0), (2, 2), (2, 2), (0, 0)])
    for image, label in zip(images, labels, strict=True):
        yield image, int(label)


def _write_images(folder: Path, encoded: list[tuple[bytes, int]]) -> None:
    for index, (image, label) in enumerate(encoded):
        (folder / str(label)).mkdir(exist_ok=True)
        (folder / str(label) / f"{index}.png").write_bytes(image)


def _write_records(path: Path, encoded: list[tuple[bytes, int]]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in encoded:
            pixels = tf.train.BytesList(value=[image])
            number = tf.train.Int64List(value=[label])
            feature = {
                "image/encoded": tf.train.Feature(bytes_list=pixels),
                "image/class/label": tf.train.Feature(int64_list=number),
            }
            example = tf.train.Example(
                features=tf.train.Features(feature=feature)
            )
            writer.write(example.SerializeToString())
