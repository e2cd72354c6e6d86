"""Times ways of doing the same work, in turn: a machine's speed drifts."""

import time
from collections.abc import Callable
from collections.abc import Hashable
from typing import Any
from typing import TypeVar

import numpy as np
import tensorflow as tf

Name = TypeVar("Name", bound=Hashable)


def compare(
    contestants: dict[Name, Callable[[], Any]], rounds: int
) -> dict[Name, float]:
    """Measures each contestant once a round, in alternation.

    Args:
        contestants: Name → function whose result, a nest of tensors, is waited
            for: an accelerator works on after the call has returned.
        rounds: How often each is measured, one uncounted call apart, which
            traces and fills caches.

    Returns:
        Name → median, in milliseconds.
    """
    for run in contestants.values():
        _milliseconds(run)
    times = [
        [_milliseconds(run) for run in contestants.values()]
        for _ in range(rounds)
    ]
    medians = np.median(times, axis=0).tolist()
    return dict(zip(contestants, medians, strict=True))


def _milliseconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for tensor in tf.nest.flatten(run(), expand_composites=True):
        np.asarray(tensor)
    return 1e3 * (time.perf_counter() - start)
