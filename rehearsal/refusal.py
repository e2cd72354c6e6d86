"""What XLA says when it refuses a program.

For want of memory there are two messages: one before the program is laid out
in memory, which has two numbers only, and one after, which lists the largest
buffers. Both are in libtpu; only the first came up in trials with 0.0.42.1,
the second is as people have reported it.
"""

import re
from typing import Any

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = r"([\d.]+)([KMGT]?)"
_BEFORE = re.compile(
    rf"temporaries \({_SIZE}B?\) exceeds available HBM \({_SIZE}B?\)"
)
_AFTER = re.compile(rf"Used {_SIZE}B? of {_SIZE}B? hbm")
_BUFFER = re.compile(
    rf"\d+\. Size: {_SIZE}B?\n"
    r"(?:\s+Operator: (?P<operator>.*)\n)?\s+Shape: (?P<shape>[^\n{]*)"
)


def out_of_memory(words: str) -> dict[str, Any] | None:
    """Reads a refusal for want of memory.

    Args:
        words: What the compiler said.

    Returns:
        `bytes_per_core` that the program needs, `bytes_available`, and
        `largest_buffers`, with the keys of `buffers.largest` but the layer,
        empty if the message lists none. None if it is another refusal.
    """
    sizes = _BEFORE.search(words) or _AFTER.search(words)
    if not sizes or "RESOURCE_EXHAUSTED" not in words:
        return None
    found = []
    for each in _BUFFER.finditer(words):
        name = re.search(r'op_name="([^"]*)"', each["operator"] or "")
        found.append(
            {
                "bytes": _bytes(*each.group(1, 2)),
                "shape": each["shape"].strip(),
                "name": name[1] if name else "",
                "kind": "temporary",
            }
        )
    return {
        "bytes_per_core": _bytes(*sizes.group(1, 2)),
        "bytes_available": _bytes(*sizes.group(3, 4)),
        "largest_buffers": found,
    }


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])


def reason(words: str) -> str:
    """Returns the line that says most, without status and place.

    MLIR's own error names the operation; the line above it names a pass.
    """
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    for line in lines:
        error = re.search(r"error: (.+)", line)
        if error:
            # Behind it the whole operation follows.
            return error[1].partition(": %")[0]
    first = lines[0] if lines else "it gave no reason"
    return re.sub(r"^([A-Z_]+: )?(during context \[.*?\]: )?", "", first)
