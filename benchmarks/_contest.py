"""What all contestants share: model, data, batch and optimizer.

Ours is the compiled loop that `train.py` calls, with the data it would read.
A contestant is a function that measures itself now: seconds → steps/s.
"""

import time
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from data import DataConfig
from data import synthetic
from data.pipeline import distribute
from data.pipeline import prepare
from flags import registry
from model import ModelConfig
from training import TrainConfig
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib

Rate = Callable[[float], float]
# 28×28×1 float32, in memory.
DATA = DataConfig(
    dataset="synthetic:shape=28x28x1,classes=10,examples=8192",
    global_batch_size=128,
)


class Contest(NamedTuple):
    """A model, and for how many steps a compiled loop runs it."""

    model: str
    """Value of `--model`."""
    options: tuple[str, ...] = ()
    """Value of `--model_options`."""
    steps: int = 100
    """Steps of one compiled loop."""


class _Constant:
    """Stands in for an iterator, and gives the same batch for ever."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def get_next(self) -> Any:
        return self._batch


def build(contest: Contest) -> keras.Model:
    """Returns a new model; in a strategy's scope, if it is to be in one."""
    model = registry.load("model", contest.model, "model")
    config = ModelConfig(model=contest.model, model_options=contest.options)
    spec = prepare.element_spec(synthetic, DATA)
    return model.build(config, spec, synthetic.info(DATA).num_outputs)


def ours_and_bare(contest: Contest) -> tuple[Rate, Rate]:
    """Returns our loop, and the same compiled steps fed from a constant."""
    strategy = tf.distribute.OneDeviceStrategy("cpu:0")
    config = TrainConfig()
    with strategy.scope():
        state = state_lib.create(build(contest), config)
    model = registry.load("model", contest.model, "model")
    task = task_lib.resolve(model, synthetic.info(DATA).task)
    loop = step_lib.make_train_loop(
        strategy, state, task, DATA.global_batch_size, config
    )
    batches = distribute.train_dataset(
        strategy, synthetic, DATA, seed=0, step=0
    )
    count = tf.constant(contest.steps, tf.int64)

    def rate_from(source: Any) -> Rate:
        return repeated(
            lambda: loop(source, count)["loss"].numpy(), contest.steps
        )

    constant = _Constant(next(iter(batches)))
    return rate_from(iter(batches)), rate_from(constant)


def repeated(run: Callable[[], Any], steps: int) -> Rate:
    """Returns a contestant that calls `run` until its time is up.

    Args:
        run: Must wait for what it computes.
        steps: Steps of one call.
    """

    def rate(seconds: float) -> float:
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            run()
            done += steps
        return done / (time.perf_counter() - start)

    return rate


def peer_batches() -> tf.data.Dataset:
    """Returns the same examples, endless, as a user of tf.data would."""
    features, labels = synthetic.arrays(DATA, "train")
    return (
        tf.data.Dataset.from_tensor_slices((features, labels))
        .shuffle(len(labels))
        .batch(DATA.global_batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
        .repeat()
    )
