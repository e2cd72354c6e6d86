import math
import time
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from training import TrainConfig
from training import inner_loop
from training import state as state_lib


def _make(metric: keras.Metric) -> inner_loop.Loop:
    return inner_loop.make(lambda value: metric.update_state(value), [metric])


def test_each_call_reports_on_its_own_steps() -> None:
    loop = _make(keras.metrics.Mean(name="mean"))
    iterator = iter(
        tf.data.Dataset.range(100).map(lambda n: tf.cast(n, tf.float32))
    )
    first = loop(iterator, tf.constant(4, tf.int64))
    second = loop(iterator, tf.constant(2, tf.int64))
    assert first["mean"].numpy() == np.mean([0, 1, 2, 3])
    assert second["mean"].numpy() == np.mean([4, 5])
    assert loop.experimental_get_tracing_count() == 1


def test_a_mean_of_nothing_is_not_zero() -> None:
    loop = _make(keras.metrics.Mean(name="mean"))
    iterator = iter(tf.data.Dataset.from_tensors(1.0))
    nothing = loop(iterator, tf.constant(0, tf.int64))
    assert np.isnan(nothing["mean"])


def test_other_metrics_report_what_they_hold() -> None:
    loop = _make(keras.metrics.Sum(name="sum"))
    iterator = iter(tf.data.Dataset.from_tensors(1.5).repeat())
    assert loop(iterator, tf.constant(3, tf.int64))["sum"].numpy() == 4.5
    assert loop(iterator, tf.constant(0, tf.int64))["sum"].numpy() == 0.0


def test_reports_metrics_rate_and_speed(strategy_of) -> None:
    with strategy_of(2).scope():
        inputs = keras.Input([1])
        model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
        state = state_lib.create(model, TrainConfig(learning_rate=0.25))
    calls = []

    def compiled(iterator, num_steps) -> dict[str, tf.Tensor]:
        calls.append((iterator, num_steps))
        state.step.assign_add(num_steps)
        return {"loss": tf.constant(3.0)}

    train = inner_loop.make_train(compiled, "iterator", state, 64)
    logs = train(5)
    assert logs["loss"] == 3.0
    assert logs["learning_rate"] == 0.25
    assert logs["examples_per_sec"] == pytest.approx(64 * logs["steps_per_sec"])
    assert calls[0][0] == "iterator"
    # A tensor, so that another number is no new trace.
    assert tf.is_tensor(calls[0][1])
    assert np.array_equal(calls[0][1], 5)


def test_a_vote_ends_the_loop_after_its_step() -> None:
    asked = tf.Variable(0)
    seen = keras.metrics.Sum(name="seen")

    def step(value: tf.Tensor) -> tf.Tensor:
        seen.update_state(1.0)
        asked.assign(tf.cast(value >= 3, tf.int32))
        return asked.read_value()

    loop = inner_loop.make(step, [seen])
    iterator = iter(tf.data.Dataset.range(100))
    first = loop(iterator, tf.constant(3, tf.int64))
    assert (first["seen"], first["interrupted"]) == (3, False)
    second = loop(iterator, tf.constant(90, tf.int64))
    assert (second["seen"], second["interrupted"]) == (1, True)


def test_says_how_long_batches_were_waited_for() -> None:
    waits = []

    def load(value: np.ndarray) -> np.ndarray:
        # Until a clock has moved on, however fast the machine is.
        start = time.monotonic()
        while time.monotonic() < start + 0.02:
            pass
        waits.append(time.monotonic() - start)
        return value

    dataset = tf.data.Dataset.range(5).map(
        lambda value: tf.numpy_function(load, [value], tf.int64)
    )
    loop = inner_loop.make(lambda value: None, [])
    results = loop(iter(dataset), tf.constant(5, tf.int64))
    assert float(results["input_wait_secs"]) >= sum(waits) >= 0.1


def test_a_norm_that_no_step_took_is_left_out() -> None:
    state = SimpleNamespace(
        model=SimpleNamespace(trainable_variables=[keras.Variable([3.0, 4.0])]),
        optimizer=keras.optimizers.SGD(),
        loss_scale=None,
        steps_done=lambda: 0,
    )

    def train(norm: float) -> dict[str, float]:
        def compiled(iterator: Any, num_steps: tf.Tensor) -> dict[str, Any]:
            return {"gradient_norm": tf.constant(norm)}

        return inner_loop.make_train(compiled, "iterator", state, 64)(1)

    assert train(2.0)["gradient_norm"] == 2.0
    assert "gradient_norm" not in train(math.nan)
    assert train(2.0)["weight_norm"] == 5.0


def test_refuses_two_metrics_of_one_name() -> None:
    metrics = [keras.metrics.Mean(name="residual") for _ in range(2)]
    with pytest.raises(RequestError, match="two metrics are called 'residual'"):
        inner_loop.make(lambda value: None, metrics)
