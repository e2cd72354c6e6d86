"""Does a training survive whatever happens to it, to the last bit?

    python -m tests.chaos.chaos --seed=1 --json=runs/chaos.json
    python -m tests.chaos.chaos --only=kill_one_device --kills=10

In each part a training is hit at moments drawn from the seed and started again
with the same command, over and over until it is done. In the end every
variable of its last checkpoint must have the bits of a training that nobody
has touched. With `--json` the parts that the file has from earlier stay in it
and in the table; the exit code is 1 if one of this run has failed.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos import parts
from tests.chaos import report

# Flag → how many by default, of what, in which parts.
_COUNTS = {
    "kills": (50, "SIGKILLs", ("kill_one_device", "kill_mirrored")),
    "worker_kills": (20, "SIGKILLs", ("kill_two_workers", "kill_launched")),
    "meetings": (6, "SIGKILLs at the first meeting", ("kill_at_meeting",)),
    "terms": (20, "SIGTERMs that save", ("term_launched",)),
    "stops": (4, "SIGSTOPs", ("stop_two_workers",)),
    "damages": (10, "damaged checkpoints", ("damage",)),
    "fills": (6, "full disks", ("fill_and_stop", "fill_and_continue")),
    "cuts": (3, "cut links", ("cut",)),
}


def main(argv: Sequence[str]) -> int:
    """Runs the parts asked for; returns the exit code."""
    options = _read(argv)
    # So that what has been started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results: dict[str, dict[str, Any]] = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    failed = False
    for name, count in _counts(options).items():
        if not count:
            continue
        print(f"{name}: {count} faults, files in {root}", flush=True)
        results[name] = parts.run(name, count, options.seed, root)
        failed = failed or bool(results[name]["problems"])
        print("".join(f"{each}\n" for each in results[name]["problems"]))
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(results, indent=2) + "\n")
    print(report.table(results))
    if failed:
        print(f"Something has failed; logs are in {root}")
    else:
        shutil.rmtree(root)
    return int(failed)


def _read(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests.chaos.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=list(parts.PARTS),
        help=f"parts, with commas between: {', '.join(parts.PARTS)}",
    )
    for name, (count, what, among) in _COUNTS.items():
        text = f"{what}, over {' and '.join(among)}; {count}"
        parser.add_argument(f"--{name}", type=int, default=count, help=text)
    options = parser.parse_args(argv)
    unknown = set(options.only) - parts.PARTS.keys()
    if unknown:
        parser.error(f"--only: there is no part {min(unknown)}")
    return options


def _counts(options: argparse.Namespace) -> dict[str, int]:
    """Returns part → number of faults, shared out evenly."""
    found = {}
    for name, (_, _, among) in _COUNTS.items():
        total = getattr(options, name)
        for i, part in enumerate(among):
            share = total * (i + 1) // len(among) - total * i // len(among)
            found[part] = share if part in options.only else 0
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
