"""One replica on each core of a TPU, or on a block of cores.

One process drives the whole TPU and is the chief. `--tpu=local` is the TPU of
this machine; `--tpu=grpc://HOST:8470` or a name on Google Cloud is one over
the network; empty, the environment says which (`cluster/tpu_name.py`). Needs
the wheel `tensorflow-tpu` in place of `tensorflow`. `--computation_shape` is
the extent of a replica's block.
"""

import os

import tensorflow as tf

from errors import RequestError
from strategies import StrategyConfig
from strategies import _devices
from strategies.cluster import tpu_name
from strategies.placement import check as placement_check
from strategies.placement import topology as topology_lib


def create(config: StrategyConfig) -> tf.distribute.Strategy:
    """Connects to the TPU, initializes it and returns its strategy.

    Raises:
        RequestError: if there is no TPU, if TensorFlow cannot use it, or if
            it is smaller than a replica.
    """
    placement_check.check(config)
    name = tpu_name.find(config.tpu, os.environ)
    _devices.configure(config)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        # Empties the TPU's memory, so it must come before any variable.
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise RequestError(
            f"--tpu={config.tpu}: cannot use the TPU {name} ({reason}); "
            f"{tpu_name.WHEEL}."
        ) from error
    return tf.distribute.TPUStrategy(
        resolver,
        experimental_device_assignment=_assign(topology, config),
        experimental_spmd_xla_partitioning=placement_check.uses_spmd(config),
    )


def _assign(
    topology: tf.tpu.experimental.Topology, config: StrategyConfig
) -> tf.tpu.experimental.DeviceAssignment | None:
    """Gives each replica its cores; None: one, in TensorFlow's own order."""
    shape = config.computation_shape
    if not shape:
        return None
    mesh_shape = tuple(int(size) for size in topology.mesh_shape)
    return tf.tpu.experimental.DeviceAssignment.build(
        topology,
        computation_shape=list(shape),
        num_replicas=topology_lib.count_replicas(mesh_shape, shape),
    )
