"""Slurm's short forms of lists.

    n[1-2,5],gpu07-ib    hosts: n1, n2, n5, gpu07-ib
    r[0-1]n[08-09]       hosts: r0n08, r0n09, r1n08, r1n09
    2(x3),1              tasks on each host: 2, 2, 2, 1
    12000-12001,12007    ports

A list longer than `MOST` is refused before it is written out: a damaged
`n[0-999999999]` must not fill the memory.
"""

import itertools
import math
import re

MOST = 10_000

# One choice per character or bracket: a pattern that matches in linear time.
_HOST = r"(?:[A-Za-z0-9._-]|\[[0-9,-]+\])+"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")
_ONE_HOST = re.compile(_HOST)
_BRACKET = re.compile(r"\[([0-9,-]+)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_COUNT = re.compile(r"([1-9][0-9]{0,5})(?:\(x([1-9][0-9]{0,5})\))?")


def hosts(text: str) -> list[str]:
    """Returns the names in a list such as `n[1-2,5],m3`, in order.

    Raises:
        ValueError: saying what is wrong with `text`.
    """
    if not _HOSTS.fullmatch(text):
        raise ValueError("must be a list of hosts, such as n[1-2,5],m3")
    names: list[str] = []
    for pattern in _ONE_HOST.findall(text):
        # Every second part is the inside of a bracket.
        parts = _BRACKET.split(pattern)
        choices = [
            numbers(part) if i % 2 else [part] for i, part in enumerate(parts)
        ]
        _check_length(len(names) + math.prod(map(len, choices)))
        # The last bracket runs fastest, as in Slurm.
        names += map("".join, itertools.product(*choices))
    return names


def numbers(text: str) -> list[str]:
    """Returns the numbers in a list such as `08-10,12`, with leading zeros.

    Raises:
        ValueError: saying what is wrong with `text`.
    """
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise ValueError(f"{part!r} is neither a number nor a range")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(f"the range {part} runs backwards")
        _check_length(len(found) + int(last) - int(first) + 1)
        # `08-10` keeps two digits, `8-10` does not.
        found += [
            f"{number:0{len(first)}d}"
            for number in range(int(first), int(last) + 1)
        ]
    return found


def counts(text: str) -> list[int]:
    """Returns the numbers in a list such as `2(x3),1`, in order.

    Raises:
        ValueError: saying what is wrong with `text`.
    """
    found: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        if not match:
            raise ValueError(
                f"{part!r} is no number of tasks; must be like 2(x3),1"
            )
        repeats = int(match[2] or 1)
        _check_length(len(found) + repeats)
        found += [int(match[1])] * repeats
    return found


def _check_length(length: int) -> None:
    if length > MOST:
        raise ValueError(f"the list is longer than {MOST:,}")
