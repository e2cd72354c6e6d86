"""rehearsal.json, and one page to look at: rehearsal.html."""

import dataclasses
import json
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import NamedTuple

from rehearsal import page
from rehearsal.compare import Checked
from rehearsal.compilation import Compiled


class Inputs(NamedTuple):
    """Where the features of one replica lie."""

    features: list[list[int]]
    """Shape of each, of a replica's batch."""
    partition_dimensions: list[int]
    """As the flag; empty: features are whole."""
    devices_per_replica: int


def write(
    folder: str,
    checked: Checked | None,
    compiled: Sequence[Compiled],
    inputs: Inputs,
) -> None:
    """Writes both files.

    Args:
        folder: Of this machine; made if it is not there.
        checked: The partitioned run; None: there was none.
        compiled: Each topology, in the order asked for.
        inputs: Where the features lie.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    content = summary(checked, compiled, inputs)
    (place / "rehearsal.json").write_text(json.dumps(content, indent=2) + "\n")
    (place / "rehearsal.html").write_text(page.render(content))
    print(f"Look at it:  {place / 'rehearsal.html'}", flush=True)


def summary(
    checked: Checked | None,
    compiled: Sequence[Compiled],
    inputs: Inputs,
) -> dict[str, Any]:
    """Returns the content of rehearsal.json.

    The keys at the top are of the first topology.
    """
    topologies = [_topology(each) for each in compiled]
    # Nothing is compiled in float64.
    first = topologies[0] if topologies else {}
    return {
        **(checked.figures() if checked else {}),
        "bytes_per_core": first.get("bytes_per_core"),
        "fits": first.get("fits"),
        "collectives": first.get("collectives", []),
        **inputs._asdict(),
        "run": dataclasses.asdict(checked) if checked else None,
        "topologies": topologies,
    }


def _topology(each: Compiled) -> Mapping[str, Any]:
    return {
        "name": each.plan.name,
        "plan": dataclasses.asdict(each.plan),
        **each.reply,
        **each.estimate(),
    }
