"""One small dataset in every form that `data/__init__.py` allows.

Example i has the feature vector [i, i] and the label i: whoever reads a batch
knows which examples it holds.
"""

import types
from collections.abc import Callable
from collections.abc import Collection

import numpy as np
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo


def make(
    kind: str,
    num_examples: int,
    num_eval: int = 1,
    bad: Collection[int] = (),
) -> types.SimpleNamespace:
    """Makes a dataset module; `_preprocess` kinds negate their labels.

    Examples that are `bad` cannot be made, unless they are plain `arrays`.
    """
    sizes = {"train": num_examples, "eval": num_eval}

    def text(index: tf.Tensor) -> tf.Tensor:
        is_bad = tf.reduce_any(index == tf.constant([-1, *bad], tf.int64))
        return tf.where(is_bad, "bad", tf.strings.as_string(index))

    def checked(index: tf.Tensor) -> tf.Tensor:
        return tf.strings.to_number(text(index), tf.int64)

    def info(config: DataConfig) -> DatasetInfo:
        return DatasetInfo(
            task="regression",
            num_examples=sizes,
            features=tf.TensorSpec([2], tf.float32),
            labels=tf.TensorSpec([], tf.int64),
        )

    def arrays(config: DataConfig, split: str) -> tuple:
        labels = np.arange(sizes[split])
        return np.stack([labels, labels], 1).astype(np.float32), labels

    def example(config: DataConfig, split: str, index: tf.Tensor) -> tuple:
        return tf.fill([2], tf.cast(index, tf.float32)), checked(index)

    def source(config: DataConfig, split: str, shard: tuple) -> tf.data.Dataset:
        worker, num_workers = shard
        texts = tf.data.Dataset.range(sizes[split]).map(text)
        return texts.shard(num_workers, worker)

    def decode(config: DataConfig, split: str, element: tf.Tensor) -> tuple:
        label = tf.strings.to_number(element, tf.int64)
        return tf.fill([2], tf.cast(label, tf.float32)), label

    def negate(config: DataConfig, split: str, element: tuple) -> tuple:
        features, labels = element
        return features, -checked(labels)

    forms: dict[str, dict[str, Callable]] = {
        "arrays": {"arrays": arrays},
        "arrays_preprocess": {"arrays": arrays, "preprocess": negate},
        "example": {"example": example},
        "example_preprocess": {"example": example, "preprocess": negate},
        "source": {"source": source, "preprocess": decode},
    }
    return types.SimpleNamespace(info=info, **forms[kind])


KINDS = [
    "arrays",
    "arrays_preprocess",
    "example",
    "example_preprocess",
    "source",
]
