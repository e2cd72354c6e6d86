"""rehearsal.json, and one page to look at: rehearsal.html."""

import dataclasses
import json
import math
import os
import tempfile
import time
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import NamedTuple

from errors import RequestError
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


def make_folder(model_dir: str) -> str:
    """Makes the folder for the report before there is work to lose.

    Args:
        model_dir: Of this machine. Empty, or a bucket that the real run is
            to write: a new folder under `runs/`.

    Raises:
        RequestError: if it cannot be written.
    """
    if not model_dir or "://" in model_dir:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        model_dir = f"runs/rehearsal-{stamp}-{os.getpid()}"
    try:
        os.makedirs(model_dir, exist_ok=True)
        with tempfile.TemporaryFile(dir=model_dir):
            return model_dir
    except OSError as error:
        raise RequestError(
            f"--model_dir={model_dir}: cannot be written ({error.strerror}); "
            "choose another one."
        ) from error


def write(
    folder: str,
    checked: Checked | None,
    compiled: Sequence[Compiled],
    inputs: Inputs,
) -> None:
    """Writes both files.

    Args:
        folder: From `make_folder`.
        checked: The partitioned run; None: there was none.
        compiled: Each topology, in the order asked for.
        inputs: Where the features lie.
    """
    place = Path(folder)
    content = summary(checked, compiled, inputs)
    text = json.dumps(content, indent=2, allow_nan=False)
    (place / "rehearsal.json").write_text(text + "\n")
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
    figures = checked.figures() if checked else {}
    # Nothing is compiled in float64.
    first = topologies[0] if topologies else {}
    return {
        **({k: _number(v) for k, v in figures.items()}),
        "bytes_per_core": first.get("bytes_per_core"),
        "fits": first.get("fits"),
        "collectives": first.get("collectives", []),
        **inputs._asdict(),
        "run": _describe(checked) if checked else None,
        "topologies": topologies,
    }


def _describe(checked: Checked) -> dict[str, Any]:
    return {k: _number(v) for k, v in dataclasses.asdict(checked).items()}


def _number(value: Any) -> Any:
    """Returns None for what JSON has no word for."""
    endless = isinstance(value, float) and not math.isfinite(value)
    return None if endless else value


def _topology(each: Compiled) -> Mapping[str, Any]:
    return {
        "name": each.plan.name,
        "plan": {
            k: _number(v) for k, v in dataclasses.asdict(each.plan).items()
        },
        **each.reply,
        **each.estimate(),
    }
