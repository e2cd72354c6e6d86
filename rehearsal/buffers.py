"""The largest buffers of an optimized program, and whose they are."""

import re
from collections.abc import Collection
from collections.abc import Sequence
from typing import Any

from rehearsal import hlo
from rehearsal import op_name as op_name_lib

# Results that are another name for memory that exists already.
_VIEWS = {"bitcast", "get-tuple-element", "tuple", "while", "conditional"}
_VIEWS |= {"call", "optimization-barrier"}
# S(1) and others are the core's own small memories, not HBM.
_ELSEWHERE = re.compile(r"\w+\[[\d,]*\]\{[^}]*S\(\d+\)[^}]*\}")


def largest(
    text: str,
    count: int,
    layers: Collection[str] = (),
    arguments: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Returns the largest buffers, as far as the program's shapes say.

    Which of them share memory, not being used at one time, is not in it.

    Args:
        text: The optimized program.
        count: How many.
        layers: Names of the model's layers, if known.
        arguments: Names of the program's arguments, if known.

    Returns:
        For each its `bytes` with padding, `shape`, `name`, `layer` and `kind`:
        `argument`, `output` or `temporary`. The largest first.
    """
    instructions = hlo.parse(text)
    called_by = hlo.callers(instructions)
    outputs = _outputs(text, instructions)
    found = [
        (hlo.shape_bytes(_ELSEWHERE.sub("", each.shape)), each)
        for each in instructions.values()
        if _is_buffer(each, called_by) and outputs.get(each.name) != "aliased"
    ]
    found.sort(key=lambda one: -one[0])
    rows = []
    for size, each in found[:count]:
        name, kind = each.op_name, outputs.get(each.name, "temporary")
        if each.opcode == "parameter":
            number, kind = int(each.operands[0]), "argument"
            name = arguments[number] if number < len(arguments) else ""
            layer = op_name_lib.layer(name, layers) if layers else ""
        else:
            names = hlo.causes(each, instructions, called_by, layers)
            layer = op_name_lib.layer(names[0], layers) if names else ""
        rows.append(
            {
                "bytes": size,
                "shape": re.sub(r"\{[^}]*\}|/\*.*?\*/", "", each.shape),
                "name": name,
                "layer": layer,
                "kind": kind,
            }
        )
    return rows


def _is_buffer(
    each: hlo.Instruction, called_by: dict[str, list[hlo.Instruction]]
) -> bool:
    """Returns whether a result has memory of its own."""
    callers = called_by.get(each.computation, [])
    inner = any(
        caller.opcode not in ("while", "conditional", "call")
        for caller in callers
    )
    if inner or each.opcode in _VIEWS or each.opcode.endswith("-start"):
        return False
    return each.opcode != "parameter" or each.computation.startswith("ENTRY")


def _outputs(
    text: str, instructions: dict[str, hlo.Instruction]
) -> dict[str, str]:
    """Returns which instructions give a result: `output` or `aliased`.

    One that is aliased lies in the memory of an argument.
    """
    header = text[: text.find("\n")]
    aliased = set(re.findall(r"\{(\d*)\}: \(\d+, \{\}", header))
    for each in instructions.values():
        if each.root and each.computation.startswith("ENTRY"):
            if each.opcode != "tuple":
                return {each.name: "aliased" if "" in aliased else "output"}
            return {
                name: "aliased" if str(i) in aliased else "output"
                for i, name in enumerate(each.operands)
            }
    return {}
