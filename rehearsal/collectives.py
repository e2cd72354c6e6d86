"""What the cores of an optimized program tell each other."""

import re
from collections.abc import Collection
from typing import Any

from rehearsal import hlo
from rehearsal import op_name as op_name_lib

_KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "collective-permute",
    "all-to-all",
    "ragged-all-to-all",
    "collective-broadcast",
)


def find(text: str, layers: Collection[str] = ()) -> list[dict[str, Any]]:
    """Returns the collectives of a program, each once.

    An asynchronous one is its start. A TPU's compiler repeats some in the
    fusions that run beside them: those share a channel.

    Args:
        text: The optimized program.
        layers: Names of the model's layers, if known.

    Returns:
        For each its `kind`; `bytes`, that the whole of it has on one core;
        `group_size`, cores that take part; `layers` that caused it;
        `direction`, forward or backward; `in_loop`: whether it runs once for
        each iteration of a loop, which the program does not count.
    """
    instructions = hlo.parse(text)
    callers = hlo.callers(instructions)
    loops = hlo.in_loops(instructions)
    found, channels = [], set()
    for each in instructions.values():
        kind = each.opcode.removesuffix("-start")
        if kind not in _KINDS:
            continue
        channel = re.search(r"channel_id=(\d+)", each.attributes)
        if channel and channel[1] in channels:
            continue
        channels |= {channel[1]} if channel else set()
        names = hlo.causes(each, instructions, callers, layers)
        found.append(
            {
                "kind": kind,
                "bytes": _payload(each, kind, instructions),
                "group_size": _group_size(each.attributes),
                "layers": sorted(
                    {op_name_lib.layer(n, layers) for n in names} - {""}
                ),
                "direction": op_name_lib.direction(" ".join(names)),
                "in_loop": each.computation in loops,
            }
        )
    return found


def _payload(
    each: hlo.Instruction, kind: str, instructions: dict[str, hlo.Instruction]
) -> int:
    # Operands, as the result of a start also holds buffers of its own.
    size = sum(
        hlo.shape_bytes(instructions[name].shape)
        for name in each.operands
        if name in instructions
    )
    return size * _group_size(each.attributes) if kind == "all-gather" else size


def _group_size(attributes: str) -> int:
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", attributes)
    if listed:
        return len(listed[1].split(","))
    counted = re.search(r"replica_groups=\[\d+,(\d+)\]", attributes)
    return int(counted[1]) if counted else 2
