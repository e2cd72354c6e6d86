"""A strategy of any number of replicas and devices, for lowering alone.

Its step is the program of one replica, with the reductions and the number of
the replica as XLA operations: what a TPU strategy hands to the compiler.
Nothing runs on it. TensorFlow offers no public way to this, so the private
parts are in this file, and a test of it names the version they are of.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.distribute import one_device_strategy


class StandInStrategy(tf.distribute.Strategy):
    """Lowers what it runs as one of several replicas.

    Args:
        num_replicas: Replicas.
        num_devices: Logical devices of each.
        spmd: Whether one program is cut for all devices of a replica; the
            real one then refuses to assign a tensor to one of them.
    """

    # The code of the real one, which looks at two attributes of `_Extended`.
    experimental_split_to_logical_devices = (
        tf.distribute.TPUStrategy.experimental_split_to_logical_devices
    )
    experimental_replicate_to_logical_devices = (
        tf.distribute.TPUStrategy.experimental_replicate_to_logical_devices
    )
    experimental_assign_to_logical_device = (
        tf.distribute.TPUStrategy.experimental_assign_to_logical_device
    )

    def __init__(
        self, num_replicas: int, num_devices: int, spmd: bool = True
    ) -> None:
        super().__init__(_Extended(self, num_replicas, num_devices, spmd))


class _Extended(one_device_strategy.OneDeviceExtended):
    def __init__(
        self,
        strategy: StandInStrategy,
        num_replicas: int,
        num_devices: int,
        spmd: bool,
    ) -> None:
        super().__init__(strategy, "/cpu:0")
        self._tpu_devices = np.empty([num_replicas, num_devices], object)
        self._use_spmd_for_xla_partitioning = spmd

    def _use_merge_call(self) -> bool:
        return False

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._tpu_devices.shape[0]

    def _call_for_each_replica(
        self, fn: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        strategy = self._container_strategy()
        with tf.device(self._device), _ReplicaContext(strategy, 0):
            return fn(*args, **kwargs)

    def _replica_ctx_all_reduce(
        self, reduce_op: tf.distribute.ReduceOp, value: Any, options: Any = None
    ) -> Any:
        replicas = self._num_replicas_in_sync

        def reduce(tensor: tf.Tensor) -> tf.Tensor:
            summed = _sum(tensor, replicas)
            is_sum = reduce_op == tf.distribute.ReduceOp.SUM
            return summed if is_sum else summed / replicas

        return tf.nest.map_structure(reduce, value)


def _sum(tensor: tf.Tensor, replicas: int) -> tf.Tensor:
    """Adds a tensor over all replicas."""

    def add(tensor: tf.Tensor) -> tf.Tensor:
        return gen_xla_ops.xla_all_reduce(
            tensor, [list(range(replicas))], "Add", "CrossReplica"
        )

    if tensor.dtype != tf.float64:
        return add(tensor)
    # The operation takes no float64. Each replica puts its bits into a row of
    # zeros: the sum of integers hands everybody all rows.
    number = gen_xla_ops.xla_replica_id()
    bits = tf.bitcast(tensor, tf.int32)
    rows = tf.one_hot(number, replicas, dtype=tf.int32)
    rows = tf.reshape(rows, [replicas, *[1] * bits.shape.rank]) * bits
    return tf.reduce_sum(tf.bitcast(add(rows), tf.float64), axis=0)


class _ReplicaContext(distribute_lib.ReplicaContext):
    @property
    def replica_id_in_sync_group(self) -> tf.Tensor:
        return gen_xla_ops.xla_replica_id()
