"""What `placement` means on a TPU: the three operations of `TPUStrategy`."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

import placement
from errors import RequestError
from strategies import StrategyConfig
from strategies.placement import topology


def create(
    strategy: tf.distribute.Strategy, config: StrategyConfig
) -> "LogicalDevices | None":
    """Returns what places tensors; None where a replica has one device.

    Args:
        strategy: A `tf.distribute.TPUStrategy`, if a replica has several.
        config: Its shape of a replica, and how features are split.
    """
    devices = topology.num_logical_devices(config.computation_shape)
    if devices == 1:
        return None
    return LogicalDevices(strategy, devices, config.partition_dimensions)


def check_features(config: StrategyConfig, feature_spec: Any) -> None:
    """Checks that every feature can be split as it was asked for.

    Args:
        config: Its `partition_dimensions`.
        feature_spec: `tf.TensorSpec` of each feature, `[None, …]`. The batch
            is known, and checked, once there are replicas.

    Raises:
        RequestError: naming both numbers.
    """
    partition = config.partition_dimensions
    for spec in tf.nest.flatten(feature_spec) if partition else ():
        placement.check_partition(partition, tuple(spec.shape))


class LogicalDevices(NamedTuple):
    """A `placement.Placer` over the logical devices of each replica."""

    strategy: Any
    """A `tf.distribute.TPUStrategy`, or what has its three operations."""
    num_devices: int
    """Logical devices of a replica."""
    partition_dimensions: tuple[int, ...] = ()
    """As the flag."""

    def split(self, tensor: tf.Tensor, partition: tuple[int, ...]) -> tf.Tensor:
        """Cuts dimension `i` into `partition[i]` parts, one a device."""
        return self.strategy.experimental_split_to_logical_devices(
            tensor, list(partition)
        )

    def replicate(self, tensor: tf.Tensor) -> tf.Tensor:
        """Gives every device the whole tensor."""
        return self.strategy.experimental_replicate_to_logical_devices(tensor)

    def assign(self, tensor: tf.Tensor, logical_device: int) -> tf.Tensor:
        """Computes the tensor on one device.

        Raises:
            RequestError: if XLA cuts one program for all of them.
        """
        try:
            return self.strategy.experimental_assign_to_logical_device(
                tensor, logical_device
            )
        except ValueError as error:
            raise RequestError(
                f"--spmd_partitioning: a tensor was assigned to logical device "
                f"{logical_device}, which one program for all devices cannot "
                "do; use --nospmd_partitioning, or split or replicate it."
            ) from error
