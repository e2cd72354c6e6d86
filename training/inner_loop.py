"""The inner loop: many steps in one compiled call.

A Python loop in a compiled function would be unrolled, and AutoGraph, which
could translate it, is off as in Keras's own `fit`: layers see the same rules.
"""

import math
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from errors import RequestError
from training import average
from training import notes
from training import optimizer as optimizer_lib
from training.state import TrainState

# (iterator, number of steps as an int64 tensor) → results by name
Loop = Callable[[Any, tf.Tensor], dict[str, tf.Tensor]]
Logs = dict[str, float]


def make(
    step: Callable[[Any], tf.Tensor | None], metrics: Sequence[keras.Metric]
) -> Loop:
    """Returns a compiled loop around `step` that reports `metrics`.

    Args:
        step: Takes a global batch, in cross-replica context. It may return a
            number `[]`, the same on every worker: if it is above 0 this step
            is the last, and `interrupted` in the results is 1. Batches were
            waited for `input_wait_secs` in all.
        metrics: Updated by the steps; reset before the first and read after
            the last, so that each call reports on its own steps only.

    Raises:
        RequestError: if two metrics have one name.
    """
    names = [metric.name for metric in metrics]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise RequestError(
            f"--model: two metrics are called {min(twice)!r}; give the layers "
            "that report them names of their own."
        )

    @tf.function(autograph=False)
    def loop(iterator: Any, num_steps: tf.Tensor) -> dict[str, tf.Tensor]:
        can_stop = False

        def body(
            done: tf.Tensor, stop: tf.Tensor, waited: tf.Tensor
        ) -> list[tf.Tensor]:
            nonlocal can_stop
            batch, seconds = _next(iterator)
            votes = step(batch)
            if votes is not None:
                can_stop, stop = True, votes > 0
            return [done + 1, stop, waited + seconds]

        for metric in metrics:
            metric.reset_state()
        _, stopped, waited = tf.while_loop(
            lambda done, stop, _: tf.logical_and(
                done < num_steps, tf.logical_not(stop)
            ),
            body,
            [
                tf.zeros_like(num_steps),
                tf.constant(False),
                tf.constant(0.0, tf.float64),
            ],
            parallel_iterations=1,
        )
        results = {metric.name: _result(metric) for metric in metrics}
        results["input_wait_secs"] = waited
        return results | ({"interrupted": stopped} if can_stop else {})

    return loop


def _next(iterator: Any) -> tuple[Any, tf.Tensor]:
    """Returns the next batch, and the seconds that it was waited for."""
    start = tf.timestamp()
    with tf.control_dependencies([start]):
        batch = iterator.get_next()
    parts = tf.nest.flatten(batch, expand_composites=True)
    with tf.control_dependencies(parts):
        return batch, tf.timestamp() - start


def _result(metric: keras.Metric) -> tf.Tensor:
    """Returns the value of a metric; NaN, not 0, for a mean of nothing."""
    result = metric.result()
    if isinstance(metric, keras.metrics.Mean):
        count = tf.convert_to_tensor(metric.count)
        result = tf.where(count > 0, result, tf.cast(math.nan, result.dtype))
    return result


def make_train(
    loop: Loop,
    iterator: Iterator[Any],
    state: TrainState,
    global_batch_size: int,
) -> Callable[[int], Logs]:
    """Returns a function that trains for `n` steps and reports on them.

    Args:
        loop: From `step.make_train_loop`.
        iterator: Over distributed global batches.
        state: What the loop trains.
        global_batch_size: Examples in each global batch.
    """
    weights = state.model.trainable_variables
    weight_norm = tf.function(
        lambda: notes.norm([weight.value for weight in weights]),
        autograph=False,
    )

    def train(num_steps: int) -> Logs:
        before = state.steps_done()
        start = time.monotonic()
        logs = _call(loop, iterator, num_steps)
        # Fewer than asked for, if the loop was interrupted.
        done = state.steps_done() - before
        logs |= _speed(done, time.monotonic() - start, global_batch_size)
        logs["learning_rate"] = optimizer_lib.learning_rate(state.optimizer)
        logs["weight_norm"] = float(weight_norm().numpy())
        if math.isnan(logs.get("gradient_norm", 0.0)):
            del logs["gradient_norm"]
        return logs | (state.loss_scale.logs() if state.loss_scale else {})

    return train


def make_evaluate(
    loop: Loop,
    dataset: Any,
    state: TrainState,
    num_steps: int,
    global_batch_size: int,
) -> Callable[[], Logs]:
    """Returns a function that evaluates the whole of `dataset`.

    Args:
        loop: From `eval_step.make_eval_loop`.
        dataset: Distributed dataset of `num_steps` global batches.
        state: Its averages of the weights, if any, are what is evaluated.
        num_steps: Global batches in it.
        global_batch_size: Examples in each, padding included.
    """

    def evaluate() -> Logs:
        weights = state.model.trainable_variables
        with average.swapped_in(state.averages, weights):
            start = time.monotonic()
            logs = _call(loop, iter(dataset), num_steps)
            seconds = time.monotonic() - start
        del logs["input_wait_secs"]
        logs |= _speed(num_steps, seconds, global_batch_size)
        logs["learning_rate"] = optimizer_lib.learning_rate(state.optimizer)
        return logs | {"examples": int(logs["examples"])}

    return evaluate


def _call(loop: Loop, iterator: Iterator[Any], num_steps: int) -> Logs:
    # A tensor: a Python number would be traced anew for each value.
    results = loop(iterator, tf.constant(num_steps, tf.int64))
    return {name: float(value.numpy()) for name, value in results.items()}


def _speed(num_steps: int, seconds: float, batch_size: int) -> Logs:
    rate = num_steps / seconds
    return {"steps_per_sec": rate, "examples_per_sec": rate * batch_size}
