"""How fast is the training loop, against its own ceiling and its peers?

    python -m benchmarks.loop --json=loop.json

    bare      the same compiled steps with the same metrics, fed from a
              constant: the difference is the input
    fit       Keras's `fit` as it comes
    fit_best  with as many steps in one call as our loop has, without XLA
    orbit     the TensorFlow Model Garden's loop, if it is installed

All train the same model on the same examples, in memory, with the same batch
and optimizer, in one process with the same threads. Peers read through tf.data
as its guide says: slices, shuffled, batched, prefetched, repeated.
"""

from collections.abc import Callable

from benchmarks import _command
from benchmarks import _contest
from benchmarks import _fit_peer
from benchmarks import _orbit_peer
from benchmarks import _pairs
from benchmarks._contest import Contest

CONTESTS = {
    "mlp": Contest("mlp", ("hidden=128",), 1000),
    "cnn": Contest("cnn"),
    "equilibrium": Contest("equilibrium"),
}
PEERS: dict[str, Callable[[Contest], _contest.Rate | None]] = {
    "fit": _fit_peer.make,
    "fit_best": _fit_peer.make_best,
    "orbit": _orbit_peer.make,
}
# What `fit` does with an iterative layer is no other question than these two.
MEET_PEERS = ("mlp", "cnn")


def measure(name: str, seconds: float, pairs: int) -> dict[str, float]:
    """Returns our steps/s, those of the others, and the ratios to them."""
    contest = CONTESTS[name]
    ours, bare = _contest.ours_and_bare(contest)
    others: dict[str, _contest.Rate | None] = {"bare": bare}
    if name in MEET_PEERS:
        others |= {peer: make(contest) for peer, make in PEERS.items()}
    figures: dict[str, float] = {}
    for other, rate in others.items():
        if rate is None:
            print(f"{name:<12} {other}: not installed, left out", flush=True)
            continue
        found = _against(ours, rate, seconds, pairs)
        figures |= {
            f"loop.{name}.{key.format(other)}": value
            for key, value in found.items()
        }
        print(
            f"{name:<12} {other:<9} {found['steps_per_sec']:>9.1f} "
            f"{found['{}_steps_per_sec']:>9.1f} {found['vs_{}']:>6.3f}  "
            f"{found['vs_{}_low']:.3f}-{found['vs_{}_high']:.3f}",
            flush=True,
        )
    return figures


def _against(
    ours: _contest.Rate, other: _contest.Rate, seconds: float, pairs: int
) -> dict[str, float]:
    """Returns the figures of one comparison, `{}` for the other's name."""
    own_rate, rate, ratio = _pairs.compare(
        lambda: ours(seconds), lambda: other(seconds), pairs
    )
    return {
        "steps_per_sec": own_rate,
        "{}_steps_per_sec": rate,
        "vs_{}": ratio.median,
        "vs_{}_low": ratio.low,
        "vs_{}_high": ratio.high,
    }


def main() -> None:
    """Measures all contests, prints a table, writes JSON if asked to."""
    parser = _command.pairs_parser(__doc__)
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    print(
        f"{'model':<12} {'other':<9} {'steps/s':>9} {'other':>9} "
        f"{'ratio':>6}  90 %"
    )
    for name in CONTESTS:
        figures |= measure(name, arguments.seconds, arguments.pairs)
    _command.write(arguments.json, figures)


if __name__ == "__main__":
    main()
