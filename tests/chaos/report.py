"""The table of a chaos run."""

import collections
import dataclasses
import statistics
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tests.chaos.faults import Fault

_COLUMNS = (
    ("part", 18),
    ("faults", 7),
    ("others", 7),
    ("in a save", 10),
    ("recovered", 10),
    ("lost steps", 18),
    ("detected, s", 13),
    ("back, s", 13),
    ("runs", 5),
    ("different", 9),
)


def summary(
    found: Sequence[Fault], most_lost: int, trainings: int, differences: int
) -> dict[str, Any]:
    """Returns the figures of one part."""
    return {
        "skipped": "",
        "faults": len(found),
        "counted": sum(fault.counts for fault in found),
        "what": dict(collections.Counter(fault.what for fault in found)),
        "moments": dict(collections.Counter(fault.moment for fault in found)),
        "during_save": sum(fault.during_save for fault in found),
        "recovered": sum(fault.lost_steps is not None for fault in found),
        "most_lost": most_lost,
        "lost_steps": _known(found, "lost_steps"),
        "detect_secs": _known(found, "detect_secs"),
        "recover_secs": _known(found, "recover_secs"),
        "trainings": trainings,
        "different": differences,
    }


def _known(found: Sequence[Fault], name: str) -> list[float]:
    values = (dataclasses.asdict(fault)[name] for fault in found)
    return [round(value, 3) for value in values if value is not None]


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns one line for each part: times and steps as median, most.

    `others` came too early or too late to be of the kind that was asked for,
    such as a kill before there were two checkpoints to damage one of.
    """
    rows = [[title for title, _ in _COLUMNS]]
    for name, result in results.items():
        if result["skipped"]:
            rows.append([name, f"skipped: {result['skipped']}"])
            continue
        most = f" (of {result['most_lost']})"
        rows.append(
            [
                name,
                str(result["counted"]),
                str(result["faults"] - result["counted"]),
                str(result["during_save"]),
                str(result["recovered"]),
                _spread(result["lost_steps"], "g") + most,
                _spread(result["detect_secs"], ".1f"),
                _spread(result["recover_secs"], ".1f"),
                str(result["trainings"]),
                str(result["different"]),
            ]
        )
    widths = [width for _, width in _COLUMNS]
    return "\n".join(
        "".join(
            f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)
        ).rstrip()
        for row in rows
    )


def _spread(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):{form}}, {max(values):{form}}"
