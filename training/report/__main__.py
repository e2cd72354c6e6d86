"""Makes a page of one run, or one that compares several.

    python -m training.report runs/a                   # runs/a/report.html
    python -m training.report runs/a runs/b --output=compare.html

Reads metrics.jsonl and run.json, so the runs need not have had the callback
`report`, and may be going on.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from errors import RequestError
from training import native_log


def main(argv: Sequence[str]) -> int:
    """Writes the page; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m training.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="its folder")
    parser.add_argument(
        "--output",
        default="",
        help="where to write; default: report.html in the folder of one run, "
        "compare.html in this folder for several",
    )
    options = parser.parse_args(argv)
    # Below the flags: TensorFlow takes seconds.
    from training.report import write

    try:
        print(write.write(options.runs, options.output))
    except RequestError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    # Before TensorFlow is imported: its notes on its own build hide ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    native_log.drop_notes()
    sys.exit(main(sys.argv[1:]))
