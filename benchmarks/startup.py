"""How long from the start of the process to the end of the first step?

    python -m benchmarks.startup --json=startup.json

`python train.py --model=mlp` against the least script that calls Keras's
`fit` on the same model, data and batch: real processes, in alternation. Below
the table one more run of ours tells where its time goes.
"""

import json
import subprocess
import sys
import tempfile
import time

from benchmarks import _command
from benchmarks import _pairs
from benchmarks import _tell

EXAMPLES = 4096
_FLAGS = (
    "--model=mlp",
    f"--dataset=synthetic:examples={EXAMPLES}",
    # The first step is told of at the end of its loop.
    "--steps_per_loop=1",
    "--callbacks=progress,summaries,benchmarks._tell",
)


def seconds_to_first_step(words: list[str]) -> float:
    """Starts `python words`, waits until it tells of a step, and ends it.

    Raises:
        RuntimeError: if it ends by itself before that.
    """
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        lines = process.stdout or ()
        told = any(_tell.read(line) for line in lines)
        seconds = time.perf_counter() - start
        # Nothing of it is needed any more, not even its end.
        process.kill()
        _, errors = process.communicate()
    if not told:
        raise RuntimeError(f"{words} ended before its first step:\n{errors}")
    return seconds


def ours() -> float:
    """Measures `train.py` in a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        return seconds_to_first_step(
            ["train.py", *_FLAGS, f"--model_dir={folder}"]
        )


def fit() -> float:
    """Measures the script that calls `fit`."""
    return seconds_to_first_step(
        ["-m", "benchmarks._fit_script", str(EXAMPLES)]
    )


def phases() -> dict[str, float]:
    """Returns phase → seconds of one run of ours, itself told by the run."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "benchmarks._phases"),
                *(*_FLAGS, f"--model_dir={folder}"),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measures both, prints a table, writes JSON if asked to."""
    parser = _command.pairs_parser(__doc__, None)
    arguments = parser.parse_args()
    own, peer, ratio = _pairs.compare(ours, fit, arguments.pairs)
    print(f"seconds to the first step: train.py {own:.2f}, fit {peer:.2f}")
    print(f"ratio {ratio.median:.3f}  {ratio.low:.3f}-{ratio.high:.3f}")
    figures = {
        "startup.seconds": own,
        "startup.fit_seconds": peer,
        "startup.vs_fit": ratio.median,
        "startup.vs_fit_low": ratio.low,
        "startup.vs_fit_high": ratio.high,
    }
    for phase, seconds in phases().items():
        print(f"    {phase:<12} {seconds:>6.2f} s")
        figures[f"startup.{phase}_seconds"] = seconds
    _command.write(arguments.json, figures)


if __name__ == "__main__":
    main()
