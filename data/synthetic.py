"""Random tensors of any shape: smoke runs and benchmarks.

Features are standard normal. Labels are a fixed linear function of them (the
largest of `classes` projections, or one projection if `classes=0`), so a loss
can fall. The numbers never depend on `--seed`.

    python train.py --dataset=synthetic:shape=28x28x1,classes=10,examples=4096
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf

import options as options_lib
from data import DataConfig
from data import DatasetInfo

_PROJECTION_SEED = 0
_SPLIT_SEEDS = {"train": 1, "eval": 2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What follows `synthetic:`."""

    shape: tuple[int, ...] = (28, 28, 1)
    """Shape of one example's features, written `28x28x1`."""
    classes: int = 10
    """Number of classes, at least 2; 0 makes it a regression."""
    examples: int = 4096
    """Training examples, all held in memory; evaluation has an eighth."""

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            sizes = "x".join(map(str, self.shape))
            raise ValueError(f"shape={sizes}: every size must be 1 or more.")
        if self.classes < 0 or self.classes == 1:
            raise ValueError(
                f"classes={self.classes}: must be 2 or more, or 0 for a "
                "regression."
            )
        if self.examples < 1:
            raise ValueError(f"examples={self.examples}: must be 1 or more.")


def info(config: DataConfig) -> DatasetInfo:
    """Describes the tensors that `config.argument` asks for.

    Raises:
        RequestError: for an unknown or repeated key or a bad value.
    """
    chosen = _options(config)
    regression = chosen.classes == 0
    return DatasetInfo(
        task="regression" if regression else "classification",
        num_examples={split: _num(chosen, split) for split in _SPLIT_SEEDS},
        features=tf.TensorSpec(chosen.shape, tf.float32),
        labels=(
            tf.TensorSpec([1], tf.float32)
            if regression
            else tf.TensorSpec([], tf.int32)
        ),
        num_classes=chosen.classes,
    )


def arrays(config: DataConfig, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Draws features `[N, *shape]` and labels `[N]`, int32, or `[N, 1]`."""
    chosen = _options(config)
    size = math.prod(chosen.shape)
    features = _normal(_SPLIT_SEEDS[split], _num(chosen, split), size)
    # The root keeps the projections standard normal whatever the shape.
    projection = _normal(_PROJECTION_SEED, size, max(1, chosen.classes))
    labels = features @ projection / np.float32(math.sqrt(size))
    if chosen.classes:
        labels = np.argmax(labels, axis=1).astype(np.int32)
    return features.reshape(-1, *chosen.shape), labels


def _options(config: DataConfig) -> Options:
    return options_lib.parse(config.argument, Options, "dataset")


def _num(chosen: Options, split: str) -> int:
    return chosen.examples if split == "train" else max(1, chosen.examples // 8)


def _normal(seed: int, rows: int, columns: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, columns), dtype=np.float32)
