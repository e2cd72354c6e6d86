"""What a TPU chip has: public figures, and what its compiler leaves free.

Peak FLOP/s, capacity and bandwidth are those of Cloud TPU's pages, one for
each generation (https://cloud.google.com/tpu/docs/v5e and so on). ICI, the
network between chips, is there for v5e and later; for v2 and v3 it is from
Jouppi et al., "A Domain-Specific Supercomputer for Training Deep Neural
Networks" (2020), for v4 from Jouppi et al., "TPU v4" (2023): links × speed.

`bytes_available` is what libtpu 0.0.42.1 itself says when a program does not
fit; the rest of a core's memory is the system's.
"""

from dataclasses import dataclass

from errors import RequestError

_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One generation. A core is what the compiler calls a device."""

    hbm_bytes: int
    """Memory of a chip."""
    cores: int
    """Cores of a chip. v5p has two that work as one: counted as one."""
    bytes_available: int
    """Memory of a core that a program may use."""
    flops_per_sec: float
    """Peak of a chip in bfloat16."""
    hbm_bytes_per_sec: float
    """Memory bandwidth of a chip."""
    ici_bytes_per_sec: float
    """All links of a chip together, in one direction."""


CHIPS = {
    "v2": Chip(
        hbm_bytes=16 * _GIB,
        cores=2,
        bytes_available=int(7.48 * _GIB),
        flops_per_sec=46e12,
        hbm_bytes_per_sec=700e9,
        ici_bytes_per_sec=248e9,
    ),
    "v3": Chip(
        hbm_bytes=32 * _GIB,
        cores=2,
        bytes_available=int(15.48 * _GIB),
        flops_per_sec=123e12,
        hbm_bytes_per_sec=900e9,
        ici_bytes_per_sec=328e9,
    ),
    "v4": Chip(
        hbm_bytes=32 * _GIB,
        cores=2,
        bytes_available=int(15.25 * _GIB),
        flops_per_sec=275e12,
        hbm_bytes_per_sec=1200e9,
        ici_bytes_per_sec=300e9,
    ),
    "v5e": Chip(
        hbm_bytes=16 * _GIB,
        cores=1,
        bytes_available=int(15.75 * _GIB),
        flops_per_sec=197e12,
        hbm_bytes_per_sec=819e9,
        ici_bytes_per_sec=200e9,
    ),
    "v5p": Chip(
        # 95 GiB in round words; the compiler counts 95.74 free.
        hbm_bytes=96 * _GIB,
        cores=1,
        bytes_available=int(95.74 * _GIB),
        flops_per_sec=459e12,
        hbm_bytes_per_sec=2765e9,
        ici_bytes_per_sec=600e9,
    ),
    "v6e": Chip(
        hbm_bytes=32 * _GIB,
        cores=1,
        bytes_available=int(31.25 * _GIB),
        flops_per_sec=918e12,
        hbm_bytes_per_sec=1638e9,
        ici_bytes_per_sec=400e9,
    ),
}


def of(topology: str) -> Chip:
    """Returns the chip of a topology such as `v5e:2x2`.

    Raises:
        RequestError: if its generation is not in the table.
    """
    generation = topology.partition(":")[0]
    if generation not in CHIPS:
        raise RequestError(
            f"--tpu_topology={topology}: generation {generation!r} is not "
            f"known; choose one of {', '.join(CHIPS)}."
        )
    return CHIPS[generation]
