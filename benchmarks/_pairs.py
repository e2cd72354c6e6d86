"""Takes turns and reports ratios: a machine's speed drifts, a pair's less."""

import time
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

_DRAWS = 2000


class Ratio(NamedTuple):
    """Median of the ratios of pairs, with its 90 % interval."""

    median: float
    low: float
    high: float


def compare(
    ours: Callable[[], float], other: Callable[[], float], pairs: int
) -> tuple[float, float, Ratio]:
    """Measures two contestants in turn.

    Args:
        ours: Returns a rate, higher is better, measured now.
        other: Likewise.
        pairs: How often each is measured.

    Returns:
        The median rate of each, and the ratio ours ÷ other pair by pair.
    """
    ours(), other()  # the first measurement traces and fills caches
    rates = np.array([(ours(), other()) for _ in range(pairs)])
    return (
        *np.median(rates, axis=0).tolist(),
        ratio(rates[:, 0] / rates[:, 1]),
    )


def rounds(
    contestants: dict[str, Callable[[], Any]], count: int
) -> dict[str, np.ndarray]:
    """Times each contestant once a round, in alternation.

    A turn begins with a call that does not count: threads that slept while the
    one before ran alone take up to a millisecond to wake.

    Args:
        contestants: Name → function whose result, a nest of tensors, is waited
            for: an accelerator works on after the call has returned.
        count: Rounds.

    Returns:
        Name → seconds, `[count]`.
    """
    times = np.array(
        [
            [(_seconds(run), _seconds(run))[1] for run in contestants.values()]
            for _ in range(count)
        ]
    )
    return dict(zip(contestants, times.T, strict=True))


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for tensor in tf.nest.flatten(run()):
        np.asarray(tensor)
    return time.perf_counter() - start


def ratio(ratios: np.ndarray) -> Ratio:
    """Returns the median of `ratios` `[P]` and its bootstrap interval."""
    random = np.random.default_rng(0)
    draws = random.choice(ratios, (_DRAWS, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.05, 0.95])
    return Ratio(float(np.median(ratios)), float(low), float(high))
