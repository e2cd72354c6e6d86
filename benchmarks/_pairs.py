"""Takes turns and reports ratios: a machine's speed drifts, a pair's less."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

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


def ratio(ratios: np.ndarray) -> Ratio:
    """Returns the median of `ratios` `[P]` and its bootstrap interval."""
    random = np.random.default_rng(0)
    draws = random.choice(ratios, (_DRAWS, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.05, 0.95])
    return Ratio(float(np.median(ratios)), float(low), float(high))
