"""Runs every benchmark and keeps all figures in one flat file.

    python -m benchmarks                   # benchmarks/results.json
    python -m benchmarks --only loop input --arguments --pairs=3 --seconds=1

Each is a process of its own. With `--only` the figures of the others stay, and
with them the commit that they were measured at.
One that fails leaves out its figures; the exit code is then 1.
"""

import argparse
import datetime
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from flags import registry

RESULTS = Path(__file__).with_name("results.json")


def names() -> list[str]:
    """Lists the benchmarks: the public modules of this package."""
    return registry.names("benchmarks")


def run(name: str, arguments: list[str]) -> dict[str, float] | None:
    """Runs one benchmark; returns its figures, or None if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        words = ["-m", f"benchmarks.{name}", f"--json={path}", *arguments]
        done = subprocess.run([sys.executable, *words])
        if done.returncode or not path.exists():
            return None
        return json.loads(path.read_text())


def origin() -> dict[str, str]:
    """Returns the commit, the time and the processor, as they are now."""
    git = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True)
    now = datetime.datetime.now(datetime.UTC)
    return {
        "commit": commit.stdout.strip() or "unknown",
        "time": now.isoformat(timespec="seconds"),
        "processor": processor(),
    }


def processor() -> str:
    """Returns the processor's name; on Linux the system knows it best."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def main() -> None:
    """Runs the benchmarks asked for and writes what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="*", default=names(), choices=names())
    parser.add_argument(
        "--arguments", nargs=argparse.REMAINDER, default=[], help="of each"
    )
    arguments = parser.parse_args()
    results = {}
    if set(arguments.only) < set(names()) and arguments.json.exists():
        results = json.loads(arguments.json.read_text())
    # Before the file is written, which would make the commit look changed.
    where, failed = origin(), []
    for name in arguments.only:
        print(f"\n== {name}", flush=True)
        figures = run(name, arguments.arguments)
        if figures is None:
            failed.append(name)
        results = {
            key: value
            for key, value in results.items()
            if not key.startswith(f"{name}.")
        } | ({f"{name}.commit": where["commit"], **figures} if figures else {})
        # After each, so that an interrupted run leaves what it has.
        content = where | dict(sorted((results | where).items()))
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
