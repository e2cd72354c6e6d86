"""When a fault happens: drawn from a seed before the run is looked at.

The same seed draws the same moments; what they meet there depends on how fast
the machine is.
"""

import random
import re
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from tests.chaos import places
from tests.chaos import waiting
from tests.chaos.jobs import Job

# The most of what a moment is counted in.
_STEPS = 6 * places.INTERVAL
_SAVES = 4
_MEET_SECS = 0.6
_DELAY_SECS = 0.02
_TEMPORARY = re.compile(r"(step-\d+)(\.json)?\.tmp.*")


class Draw(NamedTuple):
    """A moment, and what there is to choose when it has come."""

    kind: str
    """`start`: so long after it; `meet`: so long after the workers have begun
    to meet; `step`: so many steps on; `save`: when so
    many checkpoints have been begun."""
    amount: float
    """How long or how many, in [0, 1) of the most."""
    delay_secs: float
    """How long after the first sight of a temporary file."""
    picks: tuple[float, float]
    """Which of several, each in [0, 1)."""


def draw(seed: str, kinds: Sequence[str]) -> Iterator[Draw]:
    """Yields moments without end."""
    source = random.Random(seed)
    while True:
        yield Draw(
            source.choice(kinds),
            source.random(),
            source.uniform(0, _DELAY_SECS),
            (source.random(), source.random()),
        )


def wait(job: Job, moment: Draw) -> bool:
    """Waits for a moment; False if the job has ended or not come to it."""
    secs = job.place.timeout_secs
    if moment.kind == "start":
        at = job.began + moment.amount * job.place.start_secs
        _wait(job, lambda: time.time() >= at, secs)
        return not job.is_over()
    if moment.kind == "meet":
        _wait(job, lambda: "Cluster from" in job.output(), secs)
        time.sleep(moment.amount * _MEET_SECS)
        return not job.is_over()
    if not _wait(job, lambda: job.resumed() is not None, secs):
        return False
    step = max(job.resumed() or 0, job.step()) + 1
    step += int(moment.amount * _STEPS)
    # What a kill has left of a save is cleared away before the first step.
    if moment.kind == "save":
        step = 1
    step = min(step, job.place.steps)
    if not _wait(job, lambda: job.step() >= step, secs):
        return False
    if moment.kind == "save":
        begun: set[str] = set()
        most = 1 + int(moment.amount * _SAVES)

        def has_begun() -> bool:
            matches = map(_TEMPORARY.fullmatch, job.saved_names())
            begun.update(match[1] for match in matches if match)
            return len(begun) >= most

        if not _wait(job, has_begun, secs, every=0.0003):
            return False
        time.sleep(moment.delay_secs)
    return not job.is_over()


def _wait(
    job: Job, has_come: Callable[[], bool], secs: float, every: float = 0.005
) -> bool:
    def is_clear() -> bool:
        return has_come() or job.is_over()

    return waiting.wait(is_clear, secs, every) and has_come()
