"""The measured differences as a table, and the page of docs/ that shows it.

python -m tests.equivalence.table docs/equivalence.md
"""

import sys
import tempfile
from collections.abc import Iterable
from collections.abc import Sequence
from pathlib import Path

from tests.equivalence import cells
from tests.equivalence import results

_START = "<!-- measured: python -m tests.equivalence.table -->\n"


def render(folder: Path) -> str:
    """Returns one row for each cell and optimizer, in Markdown.

    In each place how far the losses, the weights and the slots are from one
    device's, and at the end how far one device is from itself.
    """
    head = ["option", "optimizer", *cells.OTHERS, "one_device, other order"]
    rows = [
        [cell, optimizer, *_differences(folder, cell, optimizer)]
        for cell in cells.CELLS
        for optimizer in cells.OPTIMIZERS
    ]
    return "".join(map(_line, [head, ["---"] * len(head), *rows]))


def main(argv: Sequence[str]) -> None:
    """Runs all cells and replaces the table in the page that is named."""
    page = Path(argv[1])
    with tempfile.TemporaryDirectory() as folder:
        results.run_all(Path(folder))
        text = page.read_text().partition(_START)[0]
        page.write_text(text + _START + "\n" + render(Path(folder)))


def _differences(folder: Path, cell: str, optimizer: str) -> Iterable[str]:
    one = results.read(folder, "one_device", cell, optimizer)
    for place in cells.OTHERS:
        yield _words(results.read(folder, place, cell, optimizer), one)
    noise = f"{cell}, accumulation 2"
    if noise in cells.NOISE:
        yield _words(results.read(folder, "one_device", noise, optimizer), one)
    else:
        yield ""


def _words(run: results.Run, one: results.Run) -> str:
    differences = results.differences_by_kind(run, one)
    kinds = ("loss", "weights", "slots")
    return " / ".join(f"{differences[kind]:.0e}" for kind in kinds)


def _line(words: Iterable[str]) -> str:
    return f"| {' | '.join(words)} |\n"


if __name__ == "__main__":
    main(sys.argv)
