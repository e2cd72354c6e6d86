"""The partitioned run against the ordinary one."""

import dataclasses
import math
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from errors import RunError
from rehearsal import execute
from rehearsal.lower import Lowered

# By dtype of the computation; a few steps of rounding, no more.
TOLERANCES = {
    "float64": 1e-6,
    "float32": 1e-4,
    "bfloat16": 5e-2,
    "float16": 5e-2,
}
# What began as zero and has no gradient, such as a bias in front of a
# normalization, is rounding and nothing else: 1e-12 in a ResNet-50 in float64.
_SMALLEST = 1e-4
_COMPARED = ("model/", "optimizer/", "average/")


class Expected(NamedTuple):
    """What the ordinary step came to."""

    losses: np.ndarray
    """`[steps]`."""
    variables: Mapping[str, np.ndarray]
    """Name → value after the last step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """How far a partitioned run is from the ordinary one."""

    replicas: int
    devices: int
    """Logical devices of each replica."""
    steps: int
    tolerance: float
    loss_difference: float
    """Largest of any step, as a part of the largest loss."""
    weight_difference: float
    """Largest of any weight, average or slot, as a part of the largest number
    of its tensor."""
    weight: str
    """The one that differs most."""
    collectives: Sequence[Mapping[str, Any]]
    """What the devices exchange in a step; see `collectives`."""
    misplaced: str = ""
    """Which input is not whole on every device; empty: none."""
    apart: str = ""
    """Which variable the replicas do not agree on; empty: none."""

    def figures(self) -> dict[str, float]:
        """Returns the two differences by name."""
        return {
            "max_loss_difference": self.loss_difference,
            "max_weight_difference": self.weight_difference,
        }

    def lines(self) -> list[str]:
        """Returns it in words."""
        return [
            f"Run on {self.replicas} x {self.devices} devices, {self.steps} "
            f"steps: largest difference of a loss {self.loss_difference:.1e}, "
            f"of a weight {self.weight_difference:.1e}"
            + (f" ({self.weight})" if self.weight else "")
        ]

    def verify(self) -> dict[str, float]:
        """Refuses a run that is not the ordinary one; returns the figures.

        Raises:
            RunError: if a difference is above the tolerance, or an input does
                not lie where it must.
        """
        if self.misplaced:
            raise RunError(
                f"rehearsal: {self.misplaced}, but must be replicated to all "
                "devices of its replica; let the step place its batch."
            )
        if self.apart:
            raise RunError(
                f"rehearsal: {self.apart} is not the same on all replicas "
                "after some steps, but must be; look for what is not summed "
                "over the replicas."
            )
        for what, value in (
            ("a loss", self.loss_difference),
            (self.weight, self.weight_difference),
        ):
            if not value <= self.tolerance:
                raise RunError(
                    f"rehearsal: {what} of the partitioned step differs by "
                    f"{value:.1e} from the ordinary step, more than "
                    f"{self.tolerance:.0e}; look for what depends on a "
                    "replica's or a device's share of the batch."
                )
        return self.figures()


def check(
    lowered: Lowered,
    batches: Sequence[Sequence[np.ndarray]],
    expected: Expected,
    *,
    num_features: int,
    shape: tuple[int, int],
    dtype: str,
) -> Checked:
    """Runs a lowered step partitioned, and compares.

    Args:
        lowered: For as many replicas as `shape` says.
        batches: Tensors of a global batch each, in the order of the inputs.
        expected: From the ordinary step on the same batches.
        num_features: How many of the inputs, the first, may be split.
        shape: Replicas, and logical devices of each.
        dtype: Of the computation; decides the tolerance.

    Raises:
        RequestError: if jax is not installed.
        RunError: if XLA fails, with its reason.
    """
    replicas, devices = shape
    _check_finite(expected)
    received = execute.execute(lowered, batches, replicas, devices)
    names = expected.variables.keys() & received.variables.keys()
    compared = sorted(name for name in names if name.startswith(_COMPARED))
    worst = max(
        (_relative(expected.variables[n], received.variables[n]), n)
        for n in compared
    )
    return Checked(
        replicas=replicas,
        devices=devices,
        steps=len(batches),
        tolerance=TOLERANCES[dtype],
        loss_difference=_relative(expected.losses, received.losses),
        weight_difference=worst[0],
        weight=worst[1],
        collectives=received.reply["collectives"],
        misplaced=find_misplaced(lowered, num_features) if devices > 1 else "",
        apart=find_apart(lowered, received.reply),
    )


def find_apart(lowered: Lowered, reply: Mapping[str, Any]) -> str:
    """Returns which variable the replicas do not agree on; empty: none.

    Args:
        lowered: What was run.
        reply: The child's.
    """
    for name, spread in zip(
        lowered.names, reply["replica_differences"], strict=True
    ):
        if spread and name.startswith(_COMPARED):
            return name
    return ""


def _check_finite(expected: Expected) -> None:
    wrong = np.flatnonzero(~np.isfinite(expected.losses))
    if wrong.size:
        raise RunError(
            f"rehearsal: the loss of step {wrong[0]} is not a number in the "
            "ordinary step either, so there is nothing to compare; lower "
            "--learning_rate, or look at the model."
        )


def _relative(expected: np.ndarray, received: np.ndarray) -> float:
    """Returns the largest difference as a part of the largest number."""
    if not expected.size:
        return 0.0
    wide = expected.astype(np.float64)
    difference = np.abs(wide - received.astype(np.float64)).max()
    if not math.isfinite(difference):
        return math.inf
    return float(difference / max(np.abs(wide).max(), _SMALLEST))


def find_misplaced(lowered: Lowered, num_features: int) -> str:
    """Returns which input is not whole on every device; empty: none.

    Where it lies changes no number of a program that XLA has partitioned, so
    that no comparison would find it. The strategy wants labels and weights
    replicated, whole or in micro-batches.

    Args:
        lowered: Of a replica with several devices.
        num_features: The first inputs, which may be split.
    """
    body = lowered.module.partition("func.func @main(")[2]
    for i in range(num_features, lowered.num_inputs):
        values = [f"%arg{i}"]
        # Between an argument and its place are copies, and its micro-batches.
        for value in values:
            values += re.findall(
                rf"(%\d+) = stablehlo\.(?:reshape|slice) {value}[ :]", body
            )
        places = re.findall(
            rf"custom_call @Sharding\((?:{'|'.join(values)})\)"
            r'.*?mhlo\.sharding = "([^"]*)"',
            body,
        )
        found = set(places or ["placed nowhere"]) - {"{replicated}"}
        if found:
            return f"input {i}, labels or weights, is {min(found)}"
    return ""
