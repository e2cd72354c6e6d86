"""What limits the speed of a step: the same step with and without its parts.

    real        as a training runs it
    constant    from one batch that never changes: the input is missing
    apart       that, and replicas that sum nothing: the all-reduce is missing
    strong      real, with the batch of one replica shared by all

What a call of the compiled loop costs by itself shows in loops of different
length. All take turns: a machine's speed drifts. A layer that synchronizes by
itself still does so in `apart`.
"""

import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from training import workers

ROUNDS = 10
# A part that takes less of a step cannot be told from noise.
LEAST_SHARE = 0.05
# A loop of so many steps hides what a call of it costs.
_MANY_STEPS = 100

# What is known of a number of replicas.
Row = dict[str, Any]
Times = dict[tuple[str, int], np.ndarray]


class Way(NamedTuple):
    """One way to run the step."""

    train: Callable[[int], Any]
    """Trains for a number of steps, the same on every worker."""
    examples: int
    """In the global batch of a step."""


class Constant:
    """In place of an iterator: gives one batch again and again."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def get_next(self) -> Any:
        """Returns the batch."""
        return self._batch


def measure(
    strategy: tf.distribute.Strategy,
    ways: Mapping[str, Way],
    steps_per_loop: int,
    seconds: float,
) -> dict[str, float]:
    """Measures all ways in turn, and returns the figures of `figures`.

    Args:
        strategy: All its workers must call this.
        ways: `real`, `constant`; `apart` with several replicas; perhaps
            `strong`.
        steps_per_loop: Of the training.
        seconds: For each.
    """
    turn = seconds / ROUNDS
    constant = ways["constant"].train
    constant(1)  # traces
    # A loop must end within its turn, however slow the model is. The second
    # time a call counts for less.
    most = 1
    for _ in range(2):
        step = _seconds(constant, most) / most
        most = _agree(strategy, turn / 2 / step)
    steps, many = min(steps_per_loop, most), min(_MANY_STEPS, most)
    # Once each, should they be the same.
    runs = dict.fromkeys((name, steps) for name in ways)
    runs |= dict.fromkeys([("constant", 1), ("constant", many)])
    calls = {}
    for name, length in runs:
        train = ways[name].train
        train(length)
        once = _seconds(train, length)
        calls[name, length] = _agree(strategy, turn / once)
    rounds = [
        {
            run: _take_turn(ways[run[0]].train, run[1], calls[run])
            for run in runs
        }
        for _ in range(ROUNDS)
    ]
    times = {run: np.array([each[run] for each in rounds]) for run in runs}
    examples = {name: way.examples for name, way in ways.items()}
    return figures(times, examples, steps, many)


def figures(
    times: Times, examples: Mapping[str, int], steps: int, many: int
) -> dict[str, float]:
    """Turns times into rates and shares.

    Args:
        times: (way, steps of a loop) → seconds of a step, `[rounds]`.
        examples: Way → those of a step.
        steps: Of a loop of the training.
        many: Of the longest loop.

    Returns:
        `<way>_examples_per_sec` of each way; seconds of a call of the loop,
        `call_secs`; and the parts of the time of a step, 0 to 1, that go to
        `input`, `all_reduce` and `host_loop`.
    """
    real, constant = times["real", steps], times["constant", steps]
    apart = times.get(("apart", steps), constant)
    call = np.zeros_like(real)
    if many > 1:
        # A step takes c + call / n in a loop of n.
        short, long = times["constant", 1], times["constant", many]
        call = (short - long) / (1 - 1 / many)
    shares = {
        "input": 1 - constant / real,
        "all_reduce": 1 - apart / constant,
        "host_loop": call / steps / real,
    }
    rates = {
        f"{name}_examples_per_sec": count / times[name, steps]
        for name, count in examples.items()
    }
    found = rates | {"call_secs": np.maximum(call, 0)}
    found |= {name: np.maximum(share, 0) for name, share in shares.items()}
    return {name: float(np.median(each)) for name, each in found.items()}


def name_largest(shares: Mapping[str, float]) -> str:
    """Returns the name of the largest share; `compute` if all are small."""
    name = max(shares, key=lambda each: shares[each])
    return name if shares[name] >= LEAST_SHARE else "compute"


def choose_counts(most: int) -> list[int]:
    """Returns 1, 2, 4, ... below `most`, and `most` itself."""
    return [*(2**i for i in range((most - 1).bit_length())), most]


def compare(count: int, found: Mapping[str, float], first: Row | None) -> Row:
    """Adds to the figures of `count` replicas what the first are needed for.

    Args:
        count: Replicas.
        found: As `figures`.
        first: The row of one replica; None: this is it.

    Returns:
        `found` with `efficiency` and `strong_efficiency`, rates as parts of
        `count` times the first's; `devices`, the part lost although replicas
        sum nothing, as they share cores or memory; and the `limit`.
    """
    row: Row = {"replicas": count, **found}
    apart = "apart_examples_per_sec"
    row.setdefault(apart, row["constant_examples_per_sec"])
    first = first or row
    ideal = count * first["real_examples_per_sec"]
    row["efficiency"] = row["real_examples_per_sec"] / ideal
    if "strong_examples_per_sec" in row:
        row["strong_efficiency"] = row["strong_examples_per_sec"] / ideal
    row["devices"] = max(0.0, 1 - row[apart] / (count * first[apart]))
    names = ("input", "all_reduce", "host_loop", "devices")
    row["limit"] = name_largest({name: row[name] for name in names})
    return row


def table(rows: Sequence[Row]) -> list[str]:
    """Returns a line for each number of replicas, and one for its limit."""
    heads = ["examples/s", "efficiency", "shared batch", "efficiency"]
    heads += ["input", "all-reduce", "host loop", "devices"]
    keys = ["real_examples_per_sec", "efficiency"]
    keys += ["strong_examples_per_sec", "strong_efficiency"]
    keys += ["input", "all_reduce", "host_loop", "devices"]
    lines = ["  ".join(["replicas", *(f"{head:>10}" for head in heads)])]
    for row in rows:
        cells = [
            _cell(row.get(key), key).rjust(max(10, len(head)))
            for key, head in zip(keys, heads, strict=True)
        ]
        lines.append("  ".join([f"{row['replicas']:>8}", *cells]))
    return lines + [_evidence(row, rows[0]) for row in rows]


def _cell(value: float | None, key: str) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if key.endswith("_per_sec") else f"{value:.2f}"


def _evidence(row: Row, first: Row) -> str:
    """Says what limits, and what shows it."""
    rate = {
        way: f"{row[f'{way}_examples_per_sec']:,.0f}"
        for way in ("real", "constant", "apart")
    }
    alone = f"{first['apart_examples_per_sec']:,.0f}"
    says = {
        "input": f"the input: {rate['real']} examples/s become "
        f"{rate['constant']} from one constant batch",
        "all_reduce": f"the all-reduce: {rate['constant']} examples/s from a "
        f"constant batch become {rate['apart']} if nothing is summed",
        "host_loop": "the host loop: each call of the compiled loop costs "
        f"{1e3 * row['call_secs']:.2f} ms; raise --steps_per_loop",
        "devices": "the devices, which share cores or memory: "
        f"{rate['apart']} examples/s if nothing is summed, against "
        f"{row['replicas']} times {alone}",
        "compute": "the model itself: input, all-reduce and host loop take "
        f"less than {LEAST_SHARE:.0%} each",
    }
    return f"{row['replicas']} limited by {says[row['limit']]}."


def _take_turn(train: Callable[[int], Any], steps: int, calls: int) -> float:
    """Returns the seconds of a step."""
    # Does not count: queues were filled while the others had their turns.
    train(steps)
    start = time.perf_counter()
    for _ in range(calls):
        train(steps)
    return (time.perf_counter() - start) / (calls * steps)


def _seconds(train: Callable[[int], Any], steps: int) -> float:
    start = time.perf_counter()
    train(steps)
    return time.perf_counter() - start


def _agree(strategy: tf.distribute.Strategy, number: float) -> int:
    """Returns the chief's number on every worker, at least 1.

    Workers that made different numbers of steps would wait for each other.
    """
    own = str(max(1, int(number))).encode()
    return int(workers.broadcast(strategy, own))
