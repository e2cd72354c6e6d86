"""What the command lines of the benchmarks have in common."""

import argparse
import json
from collections.abc import Mapping


def parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser that knows `--json`."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", help="file to write the figures to")
    return made


def pairs_parser(
    description: str | None, seconds: float | None = 5.0
) -> argparse.ArgumentParser:
    """Returns one that knows how many pairs of turns there are, too.

    Args:
        description: As for `parser`.
        seconds: How long a turn lasts unless told; None: as long as it takes.
    """
    made = parser(description)
    if seconds is not None:
        made.add_argument("--seconds", type=float, default=seconds)
    made.add_argument("--pairs", type=int, default=15)
    return made


def write(path: str | None, figures: Mapping[str, float]) -> None:
    """Writes the figures, if a file was named."""
    if path:
        with open(path, "w") as file:
            json.dump(figures, file, indent=2)
