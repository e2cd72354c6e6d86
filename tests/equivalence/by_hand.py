"""Steps small enough to compute by hand, with every option that adds up.

    python -m tests.equivalence.by_hand

prints, on each of several workers, the results of all of them.
"""

import json
import types
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training import TrainConfig
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib

# The norm is never reached: with it on, nothing may change.
OPTIONS: dict[str, Any] = {
    "gradient_accumulation_steps": 2,
    "global_clipnorm": 100.0,
    "ema_momentum": 0.5,
}


def all_results(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns the results of all steps of this module."""
    return {
        "data": data_step(strategy),
        "penalty": penalty_step(strategy),
        "joined": joined_step(strategy),
        "golden": golden_losses(strategy),
    }


def data_step(strategy: tf.distribute.Strategy) -> dict[str, float]:
    """w=0, rate 1, loss -w·v, v=1,2,3,4 twice: the gradient is -2.5."""
    values = [1, 2, 3, 4, 1, 2, 3, 4]
    return _one_step(strategy, 0.0, values, sign=-1)


def penalty_step(strategy: tf.distribute.Strategy) -> dict[str, float]:
    """w=1, rate 1, penalty w²/2, data of zeros: the gradient is 1."""
    return _one_step(strategy, 1.0, [0] * 8, penalty=0.5)


def joined_step(strategy: tf.distribute.Strategy) -> dict[str, float]:
    """w=1, rate 1, loss w·v: 2.5 in the mean of each micro-batch."""
    return _one_step(strategy, 1.0, [1, 2, 3, 4, 4, 3, 2, 1])


def golden_losses(strategy: tf.distribute.Strategy) -> list[float]:
    """Two epochs of two batches; Adam's slots are built beforehand."""

    def build() -> keras.Model:
        inputs = keras.Input([3])
        layer = keras.layers.Dense(1, kernel_initializer="zeros", name="dense")
        return keras.Model(inputs, layer(inputs))

    config = TrainConfig(optimizer="adam", learning_rate=0.1, **OPTIONS)
    with strategy.scope():
        state = state_lib.create(build(), config)
    features = np.random.RandomState(0).rand(16, 3).astype(np.float32)
    task = task_lib.resolve(types.ModuleType("none"), "regression")
    loop = step_lib.make_train_loop(strategy, state, task, 8, config)
    iterator = _iterator(strategy, features, features.sum(1, keepdims=True))
    return [_run(loop, iterator) for _ in range(4)]


def make_padded(
    strategy: tf.distribute.Strategy,
) -> tuple[Callable[[int], float], state_lib.TrainState]:
    """Returns a function, and what it trains: examples of 8 rows → loss.

    The other rows have weight 0.
    """
    config = TrainConfig(optimizer="adam", **OPTIONS)
    state = _dense_state(strategy, 0.5, config)
    task = task_lib.resolve(types.ModuleType("none"), "regression")
    loop = step_lib.make_train_loop(strategy, state, task, 8, config)

    def run(examples: int) -> float:
        weights = np.float32(np.arange(8) < examples)
        rows = weights[:, None]
        return _run(loop, _iterator(strategy, rows, 2 * rows, weights))

    return run, state


def _one_step(
    strategy: tf.distribute.Strategy,
    initial: float,
    values: Sequence[float],
    sign: int = 1,
    penalty: float = 0.0,
) -> dict[str, float]:
    """Returns weight, average and loss after a step of rate 1 on ±w·v."""
    config = TrainConfig(optimizer="sgd", learning_rate=1.0, **OPTIONS)
    state = _dense_state(strategy, initial, config, penalty)
    task = task_lib.Task(
        lambda labels, outputs: sign * outputs[:, 0], lambda: []
    )
    loop = step_lib.make_train_loop(strategy, state, task, len(values), config)
    rows = np.float32(values)[:, None]
    loss = _run(loop, _iterator(strategy, rows, rows))
    return {
        "weight": float(state.model.get_weights()[0].item()),
        "average": float(state.averages[0].numpy().item()),
        "loss": loss,
    }


def _dense_state(
    strategy: tf.distribute.Strategy,
    initial: float,
    config: TrainConfig,
    penalty: float = 0.0,
) -> state_lib.TrainState:
    """Returns the state of a model of one weight w, which returns w·x."""
    with strategy.scope():
        inputs = keras.Input([1])
        outputs = keras.layers.Dense(
            1,
            use_bias=False,
            kernel_initializer=keras.initializers.Constant(initial),
            kernel_regularizer=keras.regularizers.L2(penalty),
            name="dense",
        )(inputs)
        return state_lib.create(keras.Model(inputs, outputs), config)


def _run(loop: step_lib.Loop, iterator: Any) -> float:
    return float(loop(iterator, tf.constant(1, tf.int64))["loss"].numpy())


def _iterator(
    strategy: tf.distribute.Strategy,
    features: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
) -> Any:
    if weights is None:
        weights = np.ones(len(features), np.float32)
    arrays = (features, labels, weights)
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    dataset = dataset.batch(8, drop_remainder=True).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return iter(
        strategy.experimental_distribute_dataset(dataset.with_options(options))
    )


if __name__ == "__main__":
    results = all_results(tf.distribute.MultiWorkerMirroredStrategy())
    print(json.dumps(results))
