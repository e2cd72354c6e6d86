"""The cores of a TPU slice, and how replicas share them.

Pure arithmetic: a slice need not exist. Axes of a mesh are those of
TensorFlow, `(x, y, z, core)`: where the chip is, and which of its cores.
"""

import dataclasses
import math
import re

from errors import RequestError

# As libtpu's compile-only client counts them, hence as a rehearsal does: it
# shows the two cores of a v5p chip as one, those of a v4 chip as two.
CORES_PER_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5e": 1, "v5p": 1, "v6e": 1}
# Chips of one host along x, y and z. The client takes whole hosts only.
_HOST = (2, 2, 1)

# Generations whose chips lie in a plane, and how long its sides may be.
_FLAT = {"v2": 16, "v3": 32, "v5e": 16, "v6e": 16}

_NAME = re.compile(r"(\w+):(\d{1,4}(?:x\d{1,4}){1,2})", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slice:
    """The chips that work together as one TPU."""

    name: str
    """As it was given, such as `v5e:2x4`."""
    generation: str
    """A key of `CORES_PER_CHIP`."""
    chips: tuple[int, int, int]
    """Chips along x, y and z; each positive."""

    @property
    def cores_per_chip(self) -> int:
        """Cores of a chip that TensorFlow sees."""
        return CORES_PER_CHIP[self.generation]

    @property
    def mesh_shape(self) -> tuple[int, int, int, int]:
        """Cores along x, y, z and within a chip."""
        return (*self.chips, self.cores_per_chip)

    @property
    def num_cores(self) -> int:
        """Cores of all chips."""
        return math.prod(self.mesh_shape)


def parse(name: str) -> Slice:
    """Reads a slice's name, such as `v5e:2x4` or `v4:2x2x1`.

    Args:
        name: Generation and chips along x, y and, if not 1, z.

    Raises:
        RequestError: if there is no such slice.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise RequestError(
            f"--tpu_topology={name}: is not a generation and chips along two "
            "or three axes; write it as v5e:2x4 or v4:2x2x1."
        )
    generation, extents = match.groups()
    if generation not in CORES_PER_CHIP:
        raise RequestError(
            f"--tpu_topology={name}: there is no {generation}; the generations "
            f"are {', '.join(CORES_PER_CHIP)}."
        )
    x, y, z = [*map(int, extents.split("x")), 1][:3]
    side = _FLAT.get(generation)
    if side and (z > 1 or max(x, y) > side):
        raise RequestError(
            f"--tpu_topology={name}: a {generation} has its chips in a plane "
            f"of at most {side}x{side}; rehearse two axes within that."
        )
    for axis, chips, host in zip("xyz", (x, y, z), _HOST, strict=True):
        if chips < 1 or chips % host:
            raise RequestError(
                f"--tpu_topology={name}: {chips} chips along {axis} are not a "
                f"multiple of {host}, those of a host; rehearse whole hosts of "
                "2x2 chips."
            )
    return Slice(name=name, generation=generation, chips=(x, y, z))


def num_logical_devices(computation_shape: tuple[int, ...]) -> int:
    """Counts the cores that work on one replica; 1 for an empty shape."""
    return math.prod(computation_shape)


def count_replicas(
    mesh_shape: tuple[int, ...], computation_shape: tuple[int, ...]
) -> int:
    """Counts the replicas that fit into a mesh.

    As `tf.tpu.experimental.DeviceAssignment.build` places them: blocks side
    by side. Where the shape does not divide an axis, the rest of its cores
    have nothing to do.

    Args:
        mesh_shape: Cores along x, y, z and within a chip.
        computation_shape: Cores of a replica along the same axes; empty: one.

    Raises:
        RequestError: if not one replica fits.
    """
    shape = computation_shape or (1, 1, 1, 1)
    fitting = [
        size // cores for size, cores in zip(mesh_shape, shape, strict=True)
    ]
    if 0 in fitting:
        axis = fitting.index(0)
        raise RequestError(
            f"--computation_shape={','.join(map(str, shape))}: needs "
            f"{shape[axis]} along axis {axis}, but the TPU's mesh of cores, "
            f"{'x'.join(map(str, mesh_shape))}, has {mesh_shape[axis]}; choose "
            "a shape inside it."
        )
    return math.prod(fitting)
