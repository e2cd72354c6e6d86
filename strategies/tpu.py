"""One replica on each core of a TPU.

One process drives the whole TPU and is the chief. `--tpu=local` is the TPU of
this machine; `--tpu=grpc://HOST:8470` or a name on Google Cloud is one over
the network; empty, the environment says which (`cluster/tpu_name.py`). Needs
the wheel `tensorflow-tpu` in place of `tensorflow`.
"""

import os

import tensorflow as tf

from errors import RequestError
from strategies import StrategyConfig
from strategies import _devices
from strategies.cluster import tpu_name


def create(config: StrategyConfig) -> tf.distribute.Strategy:
    """Connects to the TPU, initializes it and returns its strategy.

    Raises:
        RequestError: if there is no TPU, or if TensorFlow cannot use it.
    """
    name = tpu_name.find(config.tpu, os.environ)
    _devices.configure(config)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        # Empties the TPU's memory, so it must come before any variable.
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise RequestError(
            f"--tpu={config.tpu}: cannot use the TPU {name} ({reason}); "
            f"{tpu_name.WHEEL}."
        ) from error
    return tf.distribute.TPUStrategy(resolver)
