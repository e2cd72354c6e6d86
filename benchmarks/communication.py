"""How long do two workers take to add up their gradients, and nothing else?

    python -m benchmarks.communication --json=communication.json

The gradients are those of an MLP with 1.9 million weights, the workers two
processes of this machine with a core and a thread each.

    keras     its default: float32, one all-reduce of all in one piece
    separate  float32, one all-reduce for each tensor
    float32   ours, in packs
    bfloat16  ours, with --gradient_compression=bfloat16
"""

import itertools
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks import _command
from benchmarks import _pairs
from strategies.cluster import loopback

# 784-1024-1024-10, the MLP of `scaling`.
_SIZES = (784, 1024, 1024, 10)


# Exchanges in a second, so that the fastest still fill it.
_RATE = 150


def measure(
    sizes: tuple[int, ...], seconds: float, pairs: int
) -> dict[str, float]:
    """Returns times, bytes and ratios for an MLP with layers of these sizes."""
    shapes: list[list[int]] = []
    for inputs, units in itertools.pairwise(sizes):
        shapes += [[inputs, units], [units]]
    calls = max(1, round(seconds * _RATE))
    ways = _run({"shapes": shapes, "pairs": pairs, "calls": calls})
    figures: dict[str, float] = {}
    print(f"{'exchange':<10} {'ms':>7} {'MB sent':>8} {'speed':>6}  90 %")
    keras = np.array(ways["keras"]["seconds"])
    for name, way in ways.items():
        times = np.array(way["seconds"])
        ratio = _pairs.ratio(keras / times)
        milliseconds, megabytes = 1e3 * np.median(times), way["bytes"] / 1e6
        print(
            f"{name:<10} {milliseconds:>7.2f} {megabytes:>8.2f} "
            f"{ratio.median:>6.2f}  {ratio.low:.2f}-{ratio.high:.2f}",
            flush=True,
        )
        figures[f"communication.mlp.{name}_ms"] = float(milliseconds)
        figures[f"communication.mlp.{name}_mb"] = megabytes
        if name in ("float32", "bfloat16"):
            # The best of ours is the one that --gradient_compression offers.
            key = "vs_keras" if name == "bfloat16" else f"vs_keras_{name}"
            for end, value in zip(("", "_low", "_high"), ratio, strict=True):
                figures[f"communication.mlp.{key}{end}"] = value
    return figures


def _run(spec: dict[str, object]) -> dict[str, Any]:
    """Returns what the first of two workers found.

    Raises:
        RuntimeError: if a worker fails, with what it said.
    """
    with loopback.reserve_ports(2) as ports:
        workers = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "benchmarks._exchange"),
                    json.dumps(
                        spec | {"cores": loopback.share_of_cores(index, 2)}
                    ),
                ],
                env={**os.environ, "TF_CONFIG": config},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index, config in enumerate(loopback.tf_configs(ports))
        ]
        said = [worker.communicate() for worker in workers]
    for line in said[0][0].splitlines():
        word, _, rest = line.partition(" ")
        if word == "figures":
            return json.loads(rest)
    raise RuntimeError(f"a worker failed:\n{said[0][1]}\n{said[1][1]}")


def main() -> None:
    """Measures, prints a table, writes JSON if asked to."""
    parser = _command.pairs_parser(__doc__)
    arguments = parser.parse_args()
    figures = measure(_SIZES, arguments.seconds, arguments.pairs)
    _command.write(arguments.json, figures)


if __name__ == "__main__":
    main()
