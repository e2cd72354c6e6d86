"""Points of two half circles that reach into each other, made from an index.

python train.py --model=mlp --dataset=two_moons
"""

import math

import tensorflow as tf

from data import DataConfig
from data import DatasetInfo

_SEEDS = {"train": 0, "eval": 1}
_NOISE = 0.1


def info(config: DataConfig) -> DatasetInfo:
    """Describes the data: points `[2]`, classes 0 and 1."""
    return DatasetInfo(
        task="classification",
        num_examples={"train": 2000, "eval": 500},
        features=tf.TensorSpec([2], tf.float32),
        labels=tf.TensorSpec([], tf.int32),
        num_classes=2,
        class_names=("upper", "lower"),
    )


def example(
    config: DataConfig, split: str, index: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes point `index` `[2]` and its class."""
    seed = tf.stack([tf.constant(_SEEDS[split], tf.int64), index])
    angle = math.pi * tf.random.stateless_uniform([], seed)
    point = tf.stack([tf.cos(angle), tf.sin(angle)])
    is_lower = index % 2 == 1
    point = tf.where(is_lower, tf.constant([1.0, 0.5]) - point, point)
    noise = _NOISE * tf.random.stateless_normal([2], seed + 2)
    return point + noise, tf.cast(is_lower, tf.int32)
