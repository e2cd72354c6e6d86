"""Writes a checkpoint before it returns, as tests of reading want it."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from training import checkpoint_writer

Variables = Mapping[str, tf.Variable]


def save(
    strategy: tf.distribute.Strategy,
    variables: Variables,
    model_dir: str,
    step: int,
    keep: int,
) -> None:
    writer = checkpoint_writer.Writer(strategy, model_dir, keep)
    writer.save(variables, step)
    writer.wait()


def save_best(
    strategy: tf.distribute.Strategy,
    variables: Variables,
    model_dir: str,
    best: Mapping[str, Any],
) -> None:
    writer = checkpoint_writer.Writer(strategy, model_dir, 1)
    writer.save_best(variables, best)
    writer.wait()
