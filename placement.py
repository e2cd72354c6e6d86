"""Where a tensor lies when several devices work on one replica.

A model says here what may be split; the step says where the batch lies; what
that means is decided by whoever runs them (`use`). Until then, and where a
replica has one device, every function returns its tensor as it came. No
TensorFlow in this file.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from typing import Protocol

from errors import RequestError


class Placer(Protocol):
    """Gives the words below a meaning; see `strategies/placement`."""

    @property
    def num_devices(self) -> int:
        """Logical devices of a replica."""

    @property
    def partition_dimensions(self) -> tuple[int, ...]:
        """Parts of each dimension of a feature; empty: it stays whole."""

    def split(self, tensor: Any, partition: tuple[int, ...]) -> Any:
        """Cuts dimension `i` into `partition[i]` parts, one a device."""

    def replicate(self, tensor: Any) -> Any:
        """Gives every device the whole tensor."""

    def assign(self, tensor: Any, logical_device: int) -> Any:
        """Computes the tensor on one device."""


_placer: Placer | None = None


def use(placer: Placer | None) -> None:
    """From now on `placer` decides; None: nothing is placed."""
    global _placer
    _placer = placer


@contextlib.contextmanager
def using(placer: Placer | None) -> Iterator[None]:
    """Inside, `placer` decides."""
    before = _placer
    use(placer)
    try:
        yield
    finally:
        use(before)


def num_devices() -> int:
    """Returns how many devices work on a replica."""
    return 1 if _placer is None else _placer.num_devices


def split(tensor: Any, axis: int) -> Any:
    """Splits one axis over all devices of a replica.

    Args:
        tensor: `[…]`, of known rank.
        axis: Its size must be known, and a multiple of the devices.

    Raises:
        RequestError: if the devices do not divide the axis.
    """
    if not _placer:
        return tensor
    devices, shape = _placer.num_devices, tensor.shape
    size = shape[axis]
    if size is None or size % devices:
        raise RequestError(
            f"--computation_shape: {devices} logical devices cannot share "
            f"axis {axis} of a tensor {tuple(shape)} equally; choose a size "
            "that they divide, or leave it whole."
        )
    partition = [1] * len(shape)
    partition[axis] = devices
    return _placer.split(tensor, tuple(partition))


def replicate(tensor: Any) -> Any:
    """Gives every device of a replica the whole tensor."""
    return _placer.replicate(tensor) if _placer else tensor


def assign(tensor: Any, logical_device: int) -> Any:
    """Computes a tensor on one device of a replica.

    Args:
        tensor: Any.
        logical_device: Below the number of devices, where there are several.

    Raises:
        RequestError: if there is no such device.
    """
    if not _placer:
        return tensor
    if not 0 <= logical_device < _placer.num_devices:
        raise RequestError(
            f"--computation_shape: logical device {logical_device} was asked "
            f"for, but a replica has {_placer.num_devices}, from 0 on; use "
            "one of them, or a larger shape."
        )
    return _placer.assign(tensor, logical_device)


def place_features(feature: Any) -> Any:
    """Splits one feature of a replica's batch as `--partition_dimensions` says.

    Without the flag it is replicated.

    Args:
        feature: `[B, …]`, one entry of the flag for each dimension.

    Raises:
        RequestError: if rank or sizes do not fit the flag.
    """
    if not _placer:
        return feature
    partition = _placer.partition_dimensions
    if not partition:
        return _placer.replicate(feature)
    check_partition(partition, tuple(feature.shape))
    return _placer.split(feature, partition)


def check_partition(
    partition: tuple[int, ...], shape: tuple[int | None, ...]
) -> None:
    """Checks a feature's shape against `--partition_dimensions`.

    Raises:
        RequestError: naming both numbers.
    """
    words = f"--partition_dimensions={','.join(map(str, partition))}"
    if len(partition) != len(shape):
        raise RequestError(
            f"{words}: has {len(partition)} entries, but a feature has "
            f"{len(shape)} dimensions, {list(shape)}; give one entry for each, "
            "the batch's first."
        )
    for i, (parts, size) in enumerate(zip(partition, shape, strict=True)):
        # The batch is not known before there are replicas.
        unknown = size is None and i > 0
        if parts > 1 and (unknown or (size or 0) % parts):
            raise RequestError(
                f"{words}: {parts} parts do not divide dimension {i} of the "
                f"features, {size}; choose a divisor."
            )
