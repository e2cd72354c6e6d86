import tensorflow as tf

from strategies import StrategyConfig
from strategies import cpu


def test_variables_are_on_the_cpu() -> None:
    strategy = cpu.create(StrategyConfig(strategy="cpu", devices=("gpu:0",)))
    assert strategy.num_replicas_in_sync == 1
    with strategy.scope():
        assert tf.Variable(1.0).device.endswith("CPU:0")
