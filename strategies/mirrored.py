"""One replica on each device of one process: GPUs, or logical CPUs.

The process is its own chief. `--devices=cpu:0,cpu:1` splits the CPU into two
logical devices that share its cores: to try out, not to gain speed.
"""

import tensorflow as tf

from strategies import StrategyConfig
from strategies import _devices


def create(config: StrategyConfig) -> tf.distribute.Strategy:
    """Returns a strategy with one replica per device.

    Raises:
        RequestError: if a device is named that is absent, or if TensorFlow
            already runs with other devices or threads.
    """
    devices = _devices.resolve(config)
    _devices.configure(config)
    # On CPUs the default reduction is a collective group that keeps its first
    # size for the whole process: a later strategy of another size aborts. On
    # GPUs the default is NCCL, which is what is wanted there.
    on_cpu = devices[0].startswith("CPU")
    return tf.distribute.MirroredStrategy(
        devices,
        cross_device_ops=tf.distribute.ReductionToOneDevice()
        if on_cpu
        else None,
    )
