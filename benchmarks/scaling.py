"""What do two workers do that one does, and what would they without talking?

    python -m benchmarks.scaling --json=scaling.json

Workers are processes of this machine with a core and a thread each, 64
examples a step for each replica, SGD. `ideal` is two of them that do not know
of each other, at the same time; all others exchange gradients. PyTorch takes
part if `make peers` has installed it.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from typing import NamedTuple

import numpy as np

from benchmarks import _command
from benchmarks import _pairs
from benchmarks import _turns
from strategies.cluster import loopback

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / ".venv-peers" / "bin" / "python"
BATCH = 64


class Contest(NamedTuple):
    """A model, in our words and in those of the peer."""

    model: str
    options: tuple[str, ...]
    """Value of `--model_options`."""
    sizes: tuple[int, ...]
    """The same: filters of a CNN, hidden units of an MLP."""
    examples: int = 8192


CONTESTS = {
    "cnn": Contest("cnn", ("filters=32x64",), (32, 64)),
    # 1.9 million weights.
    "mlp": Contest("mlp", ("hidden=1024x1024",), (1024, 1024)),
}
# Name → what is special about it; each process has one core, if not said.
OURS: dict[str, dict[str, Any]] = {
    "float32": {"workers": 2},
    "bfloat16": {"workers": 2, "compression": "bfloat16"},
    # The same batch as one worker alone has.
    "strong": {
        "workers": 2,
        "compression": "bfloat16",
        "batch": BATCH // 2,
    },
    "one_process": {"devices": ("cpu:0", "cpu:1")},
}
PEERS = {"torch_float32": "none", "torch_bfloat16": "bfloat16"}


def measure(name: str, seconds: float, pairs: int) -> dict[str, float]:
    """Returns images/s of all contestants, and the ratios to the others."""
    contest = CONTESTS[name]
    with contextlib.ExitStack() as stack:
        ideal = stack.enter_context(_alone(contest))
        contestants = {
            "ideal": ideal,
            "one": ideal._replace(processes=ideal.processes[:1]),
            **{
                key: stack.enter_context(_together(contest, **what))
                for key, what in OURS.items()
            },
        }
        for key, compression in PEERS.items() if PEER.exists() else ():
            peer = _torch(contest, compression)
            contestants[key] = stack.enter_context(peer)
        rates = _turns.rounds(contestants, seconds, pairs)
    return _report(name, rates)


def _alone(contest: Contest) -> Any:
    """Two processes that do not know of each other."""
    members = [
        _member(contest, cores=loopback.share_of_cores(index, 2))
        for index in range(2)
    ]
    return _turns.running(members, BATCH)


@contextlib.contextmanager
def _together(
    contest: Contest, *, workers: int = 1, batch: int = BATCH, **what: Any
) -> Iterator[_turns.Contestant]:
    """Workers, or one process with two replicas."""
    with loopback.reserve_ports(workers) as ports:
        if workers == 1:
            cores = sorted(os.sched_getaffinity(0))[:2]
            member = _member(
                contest,
                strategy="mirrored",
                batch=2 * batch,
                cores=cores,
                **what,
            )
            members, examples = [member], 2 * batch
        else:
            examples = batch
            members = [
                _member(
                    contest,
                    strategy="multi_worker_mirrored",
                    batch=workers * batch,
                    cores=loopback.share_of_cores(index, workers),
                    environ={"TF_CONFIG": config},
                    **what,
                )
                for index, config in enumerate(loopback.tf_configs(ports))
            ]
        with _turns.running(members, examples) as contestant:
            yield contestant


def _member(
    contest: Contest,
    *,
    cores: list[int],
    strategy: str = "one_device",
    devices: tuple[str, ...] = (),
    compression: str = "none",
    batch: int = BATCH,
    environ: dict[str, str] | None = None,
) -> _turns.Member:
    spec = {
        "model": contest.model,
        "model_options": contest.options,
        "strategy": strategy,
        "devices": devices,
        "compression": compression,
        "batch": batch,
        "examples": contest.examples,
        "cores": cores,
    }
    words = [sys.executable, "-m", "benchmarks._scaling_worker"]
    return _turns.Member(
        [*words, json.dumps(spec)], {**os.environ, **(environ or {})}
    )


@contextlib.contextmanager
def _torch(contest: Contest, compression: str) -> Iterator[_turns.Contestant]:
    """Two workers of PyTorch."""
    with loopback.reserve_ports(1) as (port,):
        members = [
            _turns.Member(
                [
                    str(PEER),
                    str(ROOT / "benchmarks" / "_torch_peer.py"),
                    json.dumps(
                        {
                            "model": contest.model,
                            "sizes": contest.sizes,
                            "compression": compression,
                            "batch": BATCH,
                            "examples": contest.examples,
                            "cores": loopback.share_of_cores(rank, 2),
                            "rank": rank,
                            "port": port,
                        }
                    ),
                ],
                os.environ,
            )
            for rank in range(2)
        ]
        with _turns.running(members, BATCH) as contestant:
            yield contestant


def _report(name: str, rates: dict[str, np.ndarray]) -> dict[str, float]:
    """Prints a table; returns flat figures."""
    best = _best(rates, ("float32", "bfloat16"))
    ratios = {
        "vs_ideal": rates[best] / rates["ideal"],
        "vs_ideal_float32": rates["float32"] / rates["ideal"],
        "vs_one": rates[best] / rates["one"],
        "strong.vs_one": rates["strong"] / rates["one"],
        "one_process.vs_one": rates["one_process"] / rates["one"],
    }
    if PEERS.keys() <= rates.keys():
        ratios["vs_torch"] = rates[best] / rates[_best(rates, tuple(PEERS))]
        ratios["vs_torch_float32"] = rates["float32"] / rates["torch_float32"]
    else:
        print("torch: not installed (make peers), left out")
    figures: dict[str, float] = {}
    for key, values in rates.items():
        figures[f"scaling.{name}.{key}.images_per_sec"] = float(
            np.median(values)
        )
        print(f"{name:<4} {key:<20} {np.median(values):>8.0f} images/s")
    for key, values in ratios.items():
        ratio = _pairs.ratio(values)
        for end, value in zip(("", "_low", "_high"), ratio, strict=True):
            figures[f"scaling.{name}.{key}{end}"] = value
        print(
            f"{name:<4} {key:<20} {ratio.median:>8.3f} "
            f"{ratio.low:.3f}-{ratio.high:.3f}",
            flush=True,
        )
    return figures


def _best(rates: dict[str, np.ndarray], names: tuple[str, ...]) -> str:
    return max(names, key=lambda name: float(np.median(rates[name])))


def main() -> None:
    """Measures all contests, prints tables, writes JSON if asked to."""
    parser = _command.pairs_parser(__doc__)
    parser.add_argument("--only", choices=CONTESTS, help="one of the models")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for name in CONTESTS:
        if arguments.only in (None, name):
            figures |= measure(name, arguments.seconds, arguments.pairs)
    _command.write(arguments.json, figures)


if __name__ == "__main__":
    main()
