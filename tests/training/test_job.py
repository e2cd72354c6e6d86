import tensorflow as tf

from training import job


def test_the_wish_to_stop_is_no_variable_of_the_strategy(strategy_of) -> None:
    """Another thread sets it, at any moment, on this worker alone."""
    strategy = strategy_of(2)
    stop = job.make_stop()
    assert "CPU:0" in stop.device
    assert not strategy.extended.variable_created_in_scope(stop)
    stop.assign(1)
    assert stop.numpy() == 1
    assert stop.dtype == tf.int32
