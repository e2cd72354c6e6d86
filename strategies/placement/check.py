"""What can be refused of a placement before any connection."""

import math
from collections.abc import Sequence

from errors import RequestError
from strategies import StrategyConfig
from strategies.placement import topology


def check(config: StrategyConfig) -> None:
    """Checks how a replica is spread, and that it fits into each topology.

    Whether a partition fits the features is `placement.check_partition`'s.

    Raises:
        RequestError: naming the flag and both numbers.
    """
    _check_shape(config.computation_shape)
    devices = topology.num_logical_devices(config.computation_shape)
    if config.partition_dimensions:
        _check_partition(config, devices)
    if config.spmd_partitioning and devices == 1:
        raise RequestError(
            "--spmd_partitioning: a replica has 1 core, which leaves nothing "
            "to partition; drop the flag, or set --computation_shape to 2 "
            "cores or more."
        )
    names = config.tpu_topology
    if len(set(names)) < len(names):
        raise RequestError(
            f"--tpu_topology={','.join(names)}: one is named twice; name each "
            "once."
        )
    for name in names:
        topology.count_replicas(
            topology.parse(name).mesh_shape, config.computation_shape
        )


def uses_spmd(config: StrategyConfig) -> bool:
    """Whether XLA cuts one program for all cores of a replica."""
    if config.spmd_partitioning is not None:
        return config.spmd_partitioning
    return topology.num_logical_devices(config.computation_shape) > 1


def _check_shape(shape: tuple[int, ...]) -> None:
    if not shape:
        return
    words = f"--computation_shape={_joined(shape)}"
    if len(shape) != 4:
        raise RequestError(
            f"{words}: has {len(shape)} entries, but must have 4: cores along "
            "x, y and z, and cores of a chip, such as 2,1,1,1."
        )
    if min(shape) < 1:
        raise RequestError(
            f"{words}: {min(shape)} cores along an axis; every entry must be 1 "
            "or more."
        )


def _check_partition(config: StrategyConfig, devices: int) -> None:
    partition = config.partition_dimensions
    words = f"--partition_dimensions={_joined(partition)}"
    if min(partition) < 1:
        raise RequestError(
            f"{words}: {min(partition)} parts of a dimension; every entry must "
            "be 1 or more, 1 where it stays whole."
        )
    parts = math.prod(partition)
    if parts != devices:
        raise RequestError(
            f"{words}: makes {parts} parts, but by --computation_shape="
            f"{_joined(config.computation_shape or (1, 1, 1, 1))} the cores "
            f"of a replica are {devices}; make the products equal."
        )
    # TensorFlow takes it, but compiles it in another way than a rehearsal.
    if devices > 1 and config.spmd_partitioning is False:
        raise RequestError(
            f"{words}: --nospmd_partitioning leaves {parts} parts to a "
            "partitioner that cannot be rehearsed; drop one of the two."
        )


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
