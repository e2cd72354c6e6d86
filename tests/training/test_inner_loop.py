import keras
import numpy as np
import tensorflow as tf

from training import inner_loop


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
