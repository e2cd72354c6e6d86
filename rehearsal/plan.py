"""What a run will hold, compute and move, before there is one."""

import dataclasses
import math
import re
from collections.abc import Mapping
from collections.abc import Sequence

import keras
import tensorflow as tf

from rehearsal import execute
from rehearsal.lower import Lowered


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """One way to lay out a run. Bytes are those of one replica."""

    name: str
    """Strategy, and topology if there is one."""
    workers: int
    """Processes."""
    replicas: int
    devices_per_replica: int
    global_batch: int
    """Examples in a step of all replicas."""
    parameters: int
    """Trainable and other weights."""
    weight_bytes: int
    optimizer_bytes: int
    """Slots of the optimizer, and averages of the weights if any."""
    gradient_bytes: int
    reduced_bytes: int
    """Summed over the replicas in each step; 0 with one."""
    flops: float = math.nan
    """Of a step, all replicas together. NaN: not known."""

    @property
    def batch(self) -> int:
        """Examples in a step of one replica."""
        return self.global_batch // self.replicas

    def lines(self) -> list[str]:
        """Returns the plan in words."""
        flops = "unknown " if math.isnan(self.flops) else _short(self.flops)
        return [
            f"{self.name}: {_count(self.workers, 'worker')}, "
            f"{_count(self.replicas, 'replica')} of "
            f"{_count(self.devices_per_replica, 'device')}",
            f"  batch: {self.global_batch} = {self.replicas} x {self.batch}",
            f"  parameters: {self.parameters:,}; in each replica "
            f"{in_words(self.weight_bytes)} of weights, "
            f"{in_words(self.optimizer_bytes)} of optimizer, "
            f"{in_words(self.gradient_bytes)} of gradients",
            f"  a step: {flops}FLOP in all, "
            f"{in_words(self.reduced_bytes)} summed over the replicas",
        ]


def make(
    name: str,
    workers: int,
    replicas: int,
    devices: int,
    batch: int,
    variables: Mapping[str, tf.Variable],
    model: keras.Model,
    lowered: Lowered,
) -> Plan:
    """Returns the plan of a layout.

    Args:
        name: Of the layout.
        workers: Processes.
        replicas: Replicas.
        devices: Logical devices of each.
        batch: Examples in a step of all replicas.
        variables: All of the state, by name.
        model: What is trained.
        lowered: The step of a replica.
    """
    weights = {each.path: each.value for each in model.trainable_variables}
    return Plan(
        name=name,
        workers=workers,
        replicas=replicas,
        devices_per_replica=devices,
        global_batch=batch,
        parameters=model.count_params(),
        weight_bytes=count_bytes(variables, ["model/"]),
        optimizer_bytes=count_bytes(variables, ["optimizer/", "average/"]),
        gradient_bytes=count_bytes(weights, [""]),
        reduced_bytes=count_reduced_bytes(lowered.module, replicas),
        flops=replicas * execute.count_flops(lowered),
    )


def count_bytes(
    variables: Mapping[str, tf.Variable], prefixes: Sequence[str]
) -> int:
    """Returns the bytes of variables whose names begin with one of these."""
    return sum(
        math.prod(variable.shape) * variable.dtype.size
        for name, variable in variables.items()
        if name.startswith(tuple(prefixes))
    )


def count_reduced_bytes(module: str, replicas: int) -> int:
    """Returns the bytes of all reductions over replicas in a lowered step.

    Args:
        module: StableHLO. Integers are float64, one row for each replica
            (`replicas.py`).
        replicas: Replicas.
    """
    found = re.findall(
        r'"stablehlo\.all_reduce"\(.*?\}\) : \(tensor<([^>]*)>\)',
        module,
        re.DOTALL,
    )
    return sum(
        _tensor_bytes(words) // (replicas if words.endswith("i32") else 1)
        for words in found
    )


def _tensor_bytes(words: str) -> int:
    """Returns the bytes of `3x3x32xf32`."""
    *sizes, dtype = words.split("x")
    return math.prod(map(int, sizes)) * int(dtype.lstrip("bfiu")) // 8


def in_words(size: float) -> str:
    """Returns bytes as `1.5 MB`; a megabyte is a million bytes."""
    for power, unit in ((9, "GB"), (6, "MB"), (3, "kB")):
        if size >= 10**power:
            return f"{size / 10**power:,.3g} {unit}"
    return f"{size:.0f} B"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _short(number: float) -> str:
    for power, letter in ((12, "T"), (9, "G"), (6, "M")):
        if number >= 10**power:
            return f"{number / 10**power:.3g} {letter}"
    return f"{number:.3g} "
