"""Cuts arrays into the parts of devices, and puts them together. NumPy only.

A layout is an array of the numbers of a replica's devices, `[parts of axis 0,
parts of axis 1, …, copies]`: where a device stands in it is the tile it has.
None: every device has the whole.
"""

from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

Layout = np.ndarray | None


def split(
    array: np.ndarray, layout: Layout, num_devices: int
) -> Iterator[np.ndarray]:
    """Yields what each device has, replica by replica.

    Args:
        array: `[num_replicas, …]`.
        layout: Of one replica.
        num_devices: Devices of a replica.

    Raises:
        ValueError: if an axis does not split into equal parts.
    """
    for whole in map(np.asarray, array):
        for device in range(num_devices):
            yield whole[_slices(whole.shape, layout, device)]


def join(
    parts: Sequence[np.ndarray],
    layout: Layout,
    num_replicas: int,
    holder: int = 0,
) -> np.ndarray:
    """Returns `[num_replicas, …]` from what each device has.

    Args:
        parts: Replica by replica.
        layout: Of one replica.
        num_replicas: Replicas.
        holder: The device to ask where every device has the whole.
    """
    num_devices = len(parts) // num_replicas
    if layout is None:
        return np.stack(parts[holder::num_devices])
    shape = [
        size * count
        for size, count in zip(parts[0].shape, layout.shape, strict=False)
    ]
    whole = np.empty([num_replicas, *shape], parts[0].dtype)
    for i, part in enumerate(parts):
        replica, device = divmod(i, num_devices)
        whole[replica][_slices(shape, layout, device)] = part
    return whole


def _slices(
    shape: Sequence[int], layout: Layout, device: int
) -> tuple[slice, ...]:
    """Returns which part of a tensor a device has."""
    if layout is None:
        return ()
    place = np.argwhere(layout == device)[0][:-1]
    slices = []
    for size, parts, index in zip(shape, layout.shape, place, strict=False):
        if size % parts:
            raise ValueError(
                f"An axis of {size} does not split into {parts} equal parts."
            )
        slices.append(slice(index * size // parts, (index + 1) * size // parts))
    return tuple(slices)
