"""1,797 handwritten digits, 8×8 grey values, that ship with the repository.

The test part of "Optical Recognition of Handwritten Digits", E. Alpaydin and
C. Kaynak, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0 (see
`digits.LICENSE.md`). 45 kB, no network.

Features: `[8, 8, 1]`, ink from 0 (none) to 1. Labels: the digit, 0 to 9.

    python train.py --dataset=digits
"""

import pathlib

import numpy as np
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from errors import RequestError

_FILE = pathlib.Path(__file__).with_name("digits.npz")
_NUM_EXAMPLES = {"train": 1438, "eval": 359}
_MAX_INK = 16.0


def info(config: DataConfig) -> DatasetInfo:
    """Describes the digits.

    Raises:
        RequestError: if `config.argument` is not empty.
    """
    if config.argument:
        raise RequestError(
            f"--dataset={config.dataset}: digits takes no argument; write "
            "--dataset=digits."
        )
    return DatasetInfo(
        task="classification",
        num_examples=_NUM_EXAMPLES,
        features=tf.TensorSpec([8, 8, 1], tf.float32),
        labels=tf.TensorSpec([], tf.int32),
        num_classes=10,
    )


def arrays(config: DataConfig, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads one split: images `[N, 8, 8, 1]` and digits `[N]`, int32."""
    with np.load(_FILE) as file:
        images, labels = file["images"], file["labels"]
    # Every fifth: the file goes by writer, so both splits meet all of them.
    in_eval = np.arange(len(labels)) % 5 == 4
    rows = in_eval if split == "eval" else ~in_eval
    features = images[rows, :, :, np.newaxis] / np.float32(_MAX_INK)
    return features, labels[rows].astype(np.int32)
