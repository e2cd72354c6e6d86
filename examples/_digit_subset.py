"""The digits of some classes only: a dataset of `examples.finetune`.

    --dataset=examples._digit_subset:5x6x7x8x9

Labels count the chosen digits from 0, as those of any other dataset.
"""

import numpy as np
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data import digits


def info(config: DataConfig) -> DatasetInfo:
    """Describes the digits that `config.argument` names, such as `5x6`."""
    return DatasetInfo(
        task="classification",
        num_examples={
            split: len(arrays(config, split)[1]) for split in ("train", "eval")
        },
        features=tf.TensorSpec([8, 8, 1], tf.float32),
        labels=tf.TensorSpec([], tf.int32),
        num_classes=len(_chosen(config)),
    )


def arrays(config: DataConfig, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads one split: images `[N, 8, 8, 1]` and labels `[N]`, int32."""
    features, labels = digits.arrays(config, split)
    chosen = _chosen(config)
    rows = np.isin(labels, chosen)
    return features[rows], np.searchsorted(chosen, labels[rows]).astype("i4")


def _chosen(config: DataConfig) -> list[int]:
    return sorted(int(word) for word in config.argument.split("x"))
