"""A small set of images, in files, as tensorflow-datasets writes them.

The digits of `data/digits.py`, enlarged to 28×28 and stored as PNG: as large,
and as hard to decode, as those of MNIST.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
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
        features, labels = digits.arrays(DataConfig(), split)
        images = np.rint(255 * features).astype(np.uint8)
        images = np.repeat(np.repeat(images, 3, axis=1), 3, axis=2)
        images = np.pad(images, [(0, 0), (2, 2), (2, 2), (0, 0)])
        for index, (image, label) in enumerate(
            zip(images, labels, strict=True)
        ):
            yield index, {"image": image, "label": int(label)}


def write(folder: Path) -> DataConfig:
    """Writes the set below `folder`; returns what reads it."""
    tfds.disable_progress_bar()
    Enlarged(data_dir=folder).download_and_prepare()
    return DataConfig(dataset=f"tfds:{NAME}", data_dir=str(folder))
