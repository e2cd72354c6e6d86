"""Reads TensorFlow's StableHLO text, and makes jaxlib take it."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

_BYTES = {"f64": 8, "i64": 8, "ui64": 8, "f32": 4, "i32": 4, "ui32": 4}
_BYTES |= {"f16": 2, "bf16": 2, "i16": 2, "ui16": 2, "complex<f64>": 16}
_BYTES |= {"complex<f32>": 8}
_TENSOR = r"tensor<((?:\d+x)*)([^<>]+(?:<\w+>)?)>"
_ARGUMENT = re.compile(rf"%arg(\d+): {_TENSOR}")
_RESULT = re.compile(rf"{_TENSOR}(?: loc\(\S+\))?$")
_BITS = re.compile(r'dense<"0x([0-9A-F]+)"> : tensor<((?:\d+x)+)i1>')


def accepted(module: str) -> str:
    """Returns the module without what jaxlib does not take.

    `mhlo.copy`, an identity, is no operation of StableHLO; a reshape to the
    same shape is one. A large boolean constant, such as a mask, is written by
    TensorFlow with a bit for each value, and read by jaxlib with a byte.
    """
    module = re.sub(
        r"mhlo\.copy (%\S+) : (tensor<[^>]*(?:<[^>]*>)?>)",
        r"stablehlo.reshape \1 : (\2) -> \2",
        module,
    )
    return _BITS.sub(_as_bytes, module)


def _as_bytes(constant: re.Match[str]) -> str:
    digits, sizes = constant.groups()
    packed = np.frombuffer(bytes.fromhex(digits), np.uint8)
    count, _ = _size(sizes, "i1")
    values = np.unpackbits(packed, count=count, bitorder="little")
    return f'dense<"0x{values.tobytes().hex()}"> : tensor<{sizes}i1>'


def aliases(module: str) -> dict[int, int]:
    """Returns which result is the new value of which argument."""
    found = re.findall(
        r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>",
        module,
    )
    if found:
        return {int(result): int(argument) for argument, result in found}
    # A module with one result has no index of it.
    single = re.search(
        r"parameter_number = (\d+) : i64\}, output_index = array<i64>", module
    )
    return {0: int(single[1])} if single else {}


def _locations(module: str) -> dict[str, str]:
    """Returns the name of each `#loc…`; a fused one has its first part's."""
    named = dict(re.findall(r'^(#loc\d*) = loc\("([^"]*)"\)', module, re.M))
    fused = re.findall(
        r"^(#loc\d*) = loc\(fused\[(#loc\d*)", module, re.MULTILINE
    )
    return named | {key: named.get(first, "") for key, first in fused}


def _op_name(line: str, locations: dict[str, str]) -> str:
    match = re.search(r'loc\((?:(#loc\d*)|"([^"]*)")\)\s*$', line)
    if not match:
        return ""
    return locations.get(match[1], "") if match[1] else match[2]


def users(module: str, words: str) -> list[str]:
    """Returns the names of the operations that a compiler complained about.

    Args:
        module: With locations.
        words: The complaint: it names the operation (`FFT`) or the target of
            a custom call (`Nonsense`).
    """
    locations = _locations(module)
    # A word in small letters may be English: `while`, `and`.
    said = set(re.findall(r"[\w.-]+", words))
    names = []
    for line in module.splitlines():
        found = re.search(
            r'= "?((?:stablehlo|chlo|mhlo)\.(\w+))"?(?: @(\w+))?', line
        )
        if not found:
            continue
        ways = {found[1], found[2].upper()}
        if ({found[3]} if found[3] else ways) & said:
            names.append(_op_name(line, locations))
    return [name for name in dict.fromkeys(names) if name]


def largest(
    module: str, count: int, arguments: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Returns the largest arguments and results, before any splitting.

    Args:
        module: With locations.
        count: How many.
        arguments: Names of the arguments, if known.

    Returns:
        For each its `bytes`, `shape`, `name` and `kind`, the largest first.
    """
    locations = _locations(module)
    found = set()
    for line in module.splitlines():
        if "func.func public" in line:
            for i, sizes, dtype in _ARGUMENT.findall(line.partition("->")[0]):
                name = arguments[int(i)] if int(i) < len(arguments) else ""
                found.add((*_size(sizes, dtype), name, "argument"))
        result = _RESULT.search(line)
        if result and " = " in line:
            name = _op_name(line, locations)
            found.add((*_size(*result.group(1, 2)), name, "uncompiled"))
    return [
        {"bytes": size, "shape": shape, "name": name, "kind": kind}
        for size, shape, name, kind in sorted(found, reverse=True)[:count]
    ]


def _size(sizes: str, dtype: str) -> tuple[int, str]:
    """Returns the bytes of `2x3x` times a dtype, and the shape as XLA's."""
    axes = [int(size) for size in sizes.split("x") if size]
    shape = f"{dtype}[{','.join(map(str, axes))}]"
    return math.prod(axes) * _BYTES.get(dtype, 1), shape
