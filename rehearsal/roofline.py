"""How long a step might take: an estimate from peaks, not a measurement."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from rehearsal.chips import Chip

ASSUMPTIONS = (
    "Arithmetic and memory each run at the chip's peak, one hiding behind the "
    "other; bfloat16's peak stands for every dtype, so float32 takes longer.",
    "Communication hides behind nothing, uses all links of a chip at their "
    "peak, takes the shortest ring and has no latency.",
    "The input pipeline and the host keep up.",
    "A loop in the step counts as one iteration.",
)


class Estimate(NamedTuple):
    """Seconds of one step on one core."""

    compute_secs: float
    memory_secs: float
    communication_secs: float
    step_secs: float
    """The larger of the first two, and the third."""


class Point(NamedTuple):
    """One topology of a comparison."""

    num_cores: int
    examples_per_step: int
    step_secs: float


def estimate(reply: Mapping[str, Any], chip: Chip) -> Estimate:
    """Estimates a step from what the compiler counted.

    Args:
        reply: Of `compile`: `flops`, `bytes_accessed` and `collectives`, all
            of one core.
        chip: A core has its share of it.
    """
    compute = reply["flops"] * chip.cores / chip.flops_per_sec
    memory = reply["bytes_accessed"] * chip.cores / chip.hbm_bytes_per_sec
    sent = sum(_bytes_sent(each) for each in reply["collectives"])
    communication = sent * chip.cores / chip.ici_bytes_per_sec
    return Estimate(
        compute, memory, communication, max(compute, memory) + communication
    )


def _bytes_sent(collective: Mapping[str, Any]) -> float:
    """Returns what one core sends, in a ring of the group."""
    others = 1 - 1 / collective["group_size"]
    if collective["kind"] in ("collective-permute", "collective-broadcast"):
        return collective["bytes"]
    # An all-reduce is a reduce-scatter and then an all-gather.
    trips = 2 if collective["kind"] == "all-reduce" else 1
    return trips * others * collective["bytes"]


def scaling(points: Sequence[Point]) -> list[float]:
    """Returns how well each topology uses its cores; the first has 1.

    It is examples per second and core, as a part of the first one's.
    """
    rates = [
        point.examples_per_step / point.step_secs / point.num_cores
        for point in points
    ]
    return [rate / rates[0] for rate in rates]
