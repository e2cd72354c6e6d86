"""The parts of a chaos run, and how one is run."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import NamedTuple

from tests.chaos import damage
from tests.chaos import disk
from tests.chaos import faults
from tests.chaos import hosts
from tests.chaos import moments
from tests.chaos import outcome
from tests.chaos import places
from tests.chaos import report
from tests.chaos import waiting
from tests.chaos.faults import Fault
from tests.chaos.hosts import Host
from tests.chaos.jobs import Job
from tests.chaos.moments import Draw

# A job that ends by itself, again and again, is no longer hit.
_MOST_ENDS = 3

Setting = contextlib.AbstractContextManager[Sequence[Host]]


def _nothing() -> str:
    return ""


def _plain(_: Path) -> Setting:
    return contextlib.nullcontext(())


class Part(NamedTuple):
    """One kind of fault in one place."""

    place: str
    hit: Callable[[Job, Draw], Fault]
    kinds: tuple[str, ...] = ("start", "step", "save")
    """Of the moments."""
    most_lost: int = 2 * places.INTERVAL
    """Steps: an interval, and the one whose save was under way."""
    flags: tuple[str, ...] = ()
    setting: Callable[[Path], Setting] = _plain
    """Makes what is needed around the folder of a training."""
    missing: Callable[[], str] = _nothing
    """Says why it cannot be run here; empty: it can."""


# Several workers first have to meet, and may each be hit alone.
_WORKERS = ("start", "meet", "step", "save")

PARTS = {
    "kill_one_device": Part("one_device", faults.kill),
    "kill_mirrored": Part("mirrored", faults.kill),
    "kill_two_workers": Part("two_workers", faults.kill, _WORKERS),
    "kill_launched": Part("launched", faults.kill, _WORKERS),
    "kill_at_meeting": Part("two_workers", faults.kill, ("meet",)),
    "term_launched": Part("launched", faults.terminate, _WORKERS, most_lost=0),
    "stop_two_workers": Part("two_workers", faults.stop, _WORKERS),
    "damage": Part(
        "one_device",
        damage.hit,
        kinds=("step",),
        most_lost=3 * places.INTERVAL,
    ),
    "fill_and_stop": Part(
        "one_device",
        faults.fill_disk,
        kinds=("step", "save"),
        setting=disk.mounted,
        missing=disk.missing,
    ),
    "fill_and_continue": Part(
        "one_device",
        faults.fill_disk,
        kinds=("step", "save"),
        flags=("--checkpoint_errors=continue",),
        setting=disk.mounted,
        missing=disk.missing,
    ),
    "cut": Part(
        "two_workers",
        faults.cut,
        _WORKERS,
        setting=hosts.connected,
        missing=hosts.missing,
    ),
}


def run(name: str, count: int, seed: int, root: Path) -> dict[str, Any]:
    """Hits trainings until `count` faults have been; returns what came of it.

    Args:
        name: Of the part.
        count: Faults; those that came to nothing are not counted.
        seed: Of the moments, together with the name.
        root: Folder for all files.
    """
    part = PARTS[name]
    reason = part.missing()
    if reason:
        return {"skipped": reason, "problems": []}
    straight = outcome.straight(part.place, root)
    draws = moments.draw(f"{seed} {name}", part.kinds)
    found: list[Fault] = []
    problems: list[str] = []
    trainings = differences = 0
    # Each training bears several faults, and one at least.
    while _num_counted(found) < count and trainings <= count:
        folder = root / f"{name}-{trainings}"
        folder.mkdir()
        trainings += 1
        with part.setting(folder) as pair:
            job = Job(
                places.PLACES[part.place],
                folder / "run",
                root / folder.name,
                part.flags,
                pair,
            )
            with contextlib.closing(job):
                problems += _train(job, part, draws, found, count)
            different = outcome.different(
                straight, folder / "run", job.place.steps
            )
        differences += bool(different)
        if different:
            problems.append(f"{folder}: differs in {', '.join(different)}")
    if _num_counted(found) < count:
        problems.append(f"only {_num_counted(found)} faults of {count}")
    problems += [
        f"{fault.what} ({fault.moment}): {problem}"
        for fault in found
        for problem in fault.problems
    ]
    return report.summary(found, part.most_lost, trainings, differences) | {
        "problems": problems
    }


def _train(
    job: Job, part: Part, draws: Iterator[Draw], found: list[Fault], count: int
) -> list[str]:
    """Hits one training until it is done; returns what it did by itself."""
    problems: list[str] = []
    pending: list[Fault] = []
    job.start()
    while len(problems) < _MOST_ENDS:
        if _num_counted(found) < count:
            moment = next(draws)
            has_come = moments.wait(job, moment)
        else:
            has_come = False
            waiting.wait(job.is_over, outcome.FINISH_SECS)
        pending = _settle(job, part, pending)
        if job.is_done():
            break
        if not has_come:
            state = f"exit codes {job.codes()}: {job.output()[-1000:]}"
            problems.append(f"{job.model_dir}: {state}")
            job.start()
            continue
        fault = part.hit(job, moment)
        if job.is_done():
            _settle(job, part, pending)
            break
        found.append(fault)
        pending.append(fault)
        if fault.is_over:
            job.go_on()
    return problems


def _settle(job: Job, part: Part, pending: list[Fault]) -> list[Fault]:
    """Notes how the job has come back from its last faults.

    Returns:
        Those of which it cannot be said yet.
    """
    resumed = job.resumed()
    if resumed is None:
        return pending
    for fault in pending:
        if fault.lost_steps is None:
            fault.lost_steps = max(0, fault.reached - resumed)
        if fault.lost_steps > part.most_lost:
            fault.problems.append(
                f"{fault.lost_steps} steps lost, not {part.most_lost} at most"
            )
        for words in fault.next_words:
            if words not in job.output():
                fault.problems.append(f"the next start does not say {words!r}")
    new = [time for step, time in job.lines(job.began) if step > resumed]
    if pending and pending[-1].is_over and new:
        pending[-1].recover_secs = new[0] - job.began
    return []


def _num_counted(found: Sequence[Fault]) -> int:
    return sum(fault.counts for fault in found)
