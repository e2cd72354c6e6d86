"""Does a long run grow?

    python -m benchmarks.memory --json=memory.json

The default model for 10,000 steps, in a process of its own, with evaluations
and checkpoints as often as by default. Its resident memory after the last step
minus that after the first tenth.
"""

import subprocess
import sys
import tempfile

from benchmarks import _command
from benchmarks import _tell

STEPS = 10_000


def resident(words: list[str]) -> dict[int, float]:
    """Runs `python train.py words`; returns step → megabytes in RAM.

    Raises:
        RuntimeError: if the run fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "train.py", f"--model_dir={folder}"),
                *("--callbacks=progress,summaries,benchmarks._tell", *words),
            ],
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"{words} failed:\n{done.stderr}")
    told = map(_tell.read, done.stdout.splitlines())
    return dict(line for line in told if line)


def main() -> None:
    """Measures one run, prints its memory, writes JSON if asked to."""
    parser = _command.parser(__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--flags", nargs="*", default=[], help="of train.py")
    arguments = parser.parse_args()
    steps = arguments.steps
    words = [f"--{flag}" for flag in arguments.flags]
    megabytes = resident([f"--train_steps={steps}", *words])
    first, last = megabytes[steps // 10], megabytes[steps]
    for step in sorted(megabytes)[:: max(1, len(megabytes) // 10)]:
        print(f"step {step:>7,} {megabytes[step]:>8.1f} MB")
    print(f"step {steps:>7,} {last:>8.1f} MB, {last - first:+.1f} since 1/10")
    figures = {"memory.resident_mb": last, "memory.growth_mb": last - first}
    _command.write(arguments.json, figures)


if __name__ == "__main__":
    main()
