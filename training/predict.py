"""Predictions for a whole dataset, in its order."""

import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def predict(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    dataset: Any,
    num_steps: int,
) -> Any:
    """Returns the model's outputs for every example, on every worker.

    `R` replicas hold `B` rows each, and row `i` of the global batch is row
    `i // R` of replica `i mod R`; padded rows are left out.

    Args:
        strategy: The one in whose scope `model` was made.
        model: The model to use.
        dataset: Distributed dataset of `(features, labels, weights)`.
        num_steps: Global batches to predict.

    Returns:
        Array `[N, …]`, or the model's structure of such arrays.
    """
    replicas = strategy.num_replicas_in_sync

    @tf.function(autograph=False)
    def step(batch: Any) -> tuple[Any, tf.Tensor]:
        features, _, weights = batch
        return model(features, training=False), weights

    def in_order(values: Any) -> np.ndarray:
        rows = strategy.gather(values, axis=0).numpy()
        by_replica = rows.reshape(replicas, -1, *rows.shape[1:])
        return by_replica.swapaxes(0, 1).reshape(rows.shape)

    parts = []
    for batch in itertools.islice(dataset, num_steps):
        outputs, weights = strategy.run(step, args=(batch,))
        real = in_order(weights) > 0
        parts.append(
            tf.nest.map_structure(
                lambda values, real=real: in_order(values)[real], outputs
            )
        )
    return tf.nest.map_structure(lambda *rows: np.concatenate(rows), *parts)
