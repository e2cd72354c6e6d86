"""Reads XLA's optimized program as text: instructions, shapes, causes.

The program is what one core runs, so all sizes are those of a core.
"""

import math
import re
from collections.abc import Collection
from collections.abc import Iterator
from typing import NamedTuple

from rehearsal import op_name as op_name_lib

_INSTRUCTION = re.compile(
    r"\s+(ROOT )?%?(\S+) = (.+?) ([a-z][\w-]*)\(([^)]*)\)(.*)"
)
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([^}]*)\})?")


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    shape: str
    opcode: str
    operands: list[str]
    attributes: str
    computation: str
    root: bool

    @property
    def op_name(self) -> str:
        """TensorFlow's name of it, "" if it has none."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else ""


def parse(text: str) -> dict[str, Instruction]:
    """Returns all instructions by name; no two of a module have the same."""
    found, computation = {}, ""
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith((" ", "HloModule")):
            computation = line.split(" (")[0].replace("%", "")
        match = _INSTRUCTION.match(line)
        if match:
            operands = re.findall(r"%?([\w.-]+)(?:,|$)", match[5])
            found[match[2]] = Instruction(
                name=match[2],
                shape=match[3],
                opcode=match[4],
                operands=operands,
                attributes=match[6],
                computation=computation,
                root=bool(match[1]),
            )
    return found


def shape_bytes(shape: str) -> int:
    """Returns the bytes of a shape, or of all of a tuple, with its padding.

    A TPU lays the last two axes out in tiles: `f32[256,10]{0,1:T(8,128)}` has
    10 rows of 256, rounded up to 16 rows.
    """
    return sum(_array_bytes(*match) for match in _SHAPE.findall(shape))


def _array_bytes(dtype: str, sizes: str, layout: str) -> int:
    bits = re.search(r"\d+", dtype)
    width = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}.get(
        dtype, int(bits[0]) if bits else 8
    )
    axes = [int(size) for size in sizes.split(",") if size]
    order, _, tiling = layout.partition(":")
    tile = re.match(r"T\(([\d,]+)\)", tiling)
    if tile and axes and order:
        minor_first = [int(axis) for axis in order.split(",")]
        lengths = [int(size) for size in tile[1].split(",")]
        for axis, length in zip(minor_first, reversed(lengths), strict=False):
            axes[axis] = -(-axes[axis] // length) * length
    return -(-math.prod(axes) * width // 8)


def causes(
    each: Instruction,
    instructions: dict[str, Instruction],
    called_by: dict[str, list[Instruction]],
    layers: Collection[str],
) -> list[str]:
    """Returns the nearest names of a layer's, going back to the operands.

    The sum of gradients over replicas has no layer in its own name; what it
    sums has.
    """
    level, seen = [each], set()
    while level:
        names = [n for one in level for n in op_name_lib.split(one.op_name)]
        names = [n for n in names if op_name_lib.layer(n, layers)]
        if names:
            return names
        seen |= {one.name for one in level}
        before = [n for one in level for n in _sources(one, instructions)]
        for one in level:
            if one.opcode == "parameter":
                for caller in called_by.get(one.computation, []):
                    before += [caller.name, *caller.operands]
        level = [
            instructions[name]
            for name in dict.fromkeys(before)
            if name in instructions and name not in seen
        ]
    return []


def _sources(
    each: Instruction, instructions: dict[str, Instruction]
) -> list[str]:
    """Returns the operands that a value comes from."""
    index = re.search(r"\bindex=(\d+)", each.attributes)
    whole = instructions.get(each.operands[0]) if each.operands else None
    if each.opcode != "get-tuple-element" or not index or not whole:
        return each.operands
    # One part of several that were reduced together has its own origin.
    if whole.opcode in ("tuple", "all-reduce"):
        return [whole.operands[int(index[1])]]
    return each.operands


def called(each: Instruction) -> Iterator[tuple[str, str]]:
    """Yields how and what an instruction calls."""
    yield from re.findall(
        r"(calls|to_apply|body|condition|true_computation|false_computation)"
        r"=%?([\w.-]+)",
        each.attributes,
    )
    branches = re.search(r"branch_computations=\{([^}]*)\}", each.attributes)
    for name in branches[1].split(",") if branches else ():
        yield "branch", name.strip().lstrip("%")


def callers(
    instructions: dict[str, Instruction],
) -> dict[str, list[Instruction]]:
    """Returns by whom each computation is called."""
    found: dict[str, list[Instruction]] = {}
    for each in instructions.values():
        for _, name in called(each):
            found.setdefault(name, []).append(each)
    return found


def in_loops(instructions: dict[str, Instruction]) -> set[str]:
    """Returns the computations that a loop runs, directly or not."""
    calls = [
        (each.computation, how, name)
        for each in instructions.values()
        for how, name in called(each)
    ]
    inside = {name for _, how, name in calls if how in ("body", "condition")}
    while True:
        more = {name for where, _, name in calls if where in inside} - inside
        if not more:
            return inside
        inside |= more
