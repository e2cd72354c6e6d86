"""One replica on one device: a CPU or a GPU of one process.

The process is its own chief. `--devices` names the device; `cpu:1` is the
second of two logical CPUs.
"""

import tensorflow as tf

from errors import RequestError
from strategies import StrategyConfig
from strategies import _devices


def create(config: StrategyConfig) -> tf.distribute.Strategy:
    """Returns a strategy with one replica.

    Raises:
        RequestError: if several devices are named, or one that is absent, or
            if TensorFlow already runs with other devices or threads.
    """
    if len(config.devices) > 1:
        raise RequestError(
            f"--devices={','.join(config.devices)}: --strategy=one_device "
            "takes one device; name one, or use --strategy=mirrored."
        )
    device = _devices.resolve(config)[0]
    _devices.configure(config)
    return tf.distribute.OneDeviceStrategy(device)
