"""What is done to a job, and what must come of it.

Every fault here returns once all that it concerns has ended, or goes on.
"""

import contextlib
import dataclasses
import os
import re
import signal
import time
from collections.abc import Collection
from collections.abc import Mapping

from tests.chaos import disk
from tests.chaos import waiting
from tests.chaos.jobs import Job
from tests.chaos.moments import Draw

DETECT_SECS = 30.0
"""The others must have ended by then."""
_MARKED = re.compile(r"step-(\d+)\.json")
_SAVED = re.compile(r"\[worker \d+\] train\.py: interrupted; step (\d+) of")


@dataclasses.dataclass
class Fault:
    """One, and what came of it."""

    what: str
    moment: str
    reached: int = 0
    """Last step before it; 0: none since the last start."""
    during_save: bool = False
    """Whether it left something unfinished among the checkpoints."""
    detect_secs: float | None = None
    """From the fault to the end of the workers that were not hit."""
    lost_steps: int | None = None
    recover_secs: float | None = None
    """From the next start to the first new step."""
    is_over: bool = True
    """Whether the job must be started again."""
    counts: bool = True
    """Whether it is one of those asked for."""
    next_words: list[str] = dataclasses.field(default_factory=list)
    """What the next start must say."""
    problems: list[str] = dataclasses.field(default_factory=list)


def kill(job: Job, moment: Draw) -> Fault:
    """Ends one process, the launcher included, with SIGKILL."""
    everyone = job.workers() | job.launcher()
    name = _choose(everyone, moment.picks[0])
    fault = Fault(f"SIGKILL of {name}", moment.kind)
    others = _without(job.workers(), name)
    _hit(job, fault, signal.SIGKILL, everyone[name], others)
    if not job.place.is_launched:
        _check_words(job, fault, {name})
    return fault


def terminate(job: Job, moment: Draw) -> Fault:
    """Asks the launcher, or one worker under it, to stop: SIGTERM."""
    everyone = job.launcher()
    if moment.picks[0] < 0.5:
        everyone = job.workers() or everyone
    name = _choose(everyone, moment.picks[1])
    fault = Fault(f"SIGTERM to {name}", moment.kind)
    _hit(job, fault, signal.SIGTERM, everyone[name], job.workers())
    if name in job.launcher():
        waiting.wait(job.is_over, DETECT_SECS)
        if job.codes()[name] not in (0, 42):
            fault.problems.append(f"exit codes {job.codes()}, not 42")
    # After the last step there is no more to save than what is saved anyway.
    fault.counts = 0 < fault.reached < job.place.steps
    saved = [int(step) for step in _SAVED.findall(job.output())]
    newest = job.checkpoints()[-1:]
    wanted = [fault.reached] * job.place.num_workers
    if fault.counts and not job.is_done():
        if saved != wanted or newest != wanted[:1]:
            fault.problems.append(
                f"step {fault.reached} reached, {saved} said to be saved, "
                f"{newest} is there"
            )
        if fault.during_save:
            fault.problems.append(f"left behind: {job.saved_names()}")
    return fault


def stop(job: Job, moment: Draw) -> Fault:
    """Stops a worker with SIGSTOP; later it goes on, or is killed."""
    everyone = job.workers()
    name = _choose(everyone, moment.picks[0])
    fault = Fault(f"SIGSTOP of {name}", moment.kind)
    others = _without(everyone, name)
    _hit(job, fault, signal.SIGSTOP, everyone[name], others)
    if moment.picks[1] < 0.5:
        # Awake again, it must find out that it is alone.
        os.kill(everyone[name], signal.SIGCONT)
        _await_end({name: everyone[name]}, fault)
    with contextlib.suppress(ProcessLookupError):
        os.kill(everyone[name], signal.SIGKILL)
    waiting.wait(job.is_over, DETECT_SECS)
    _check_words(job, fault, {name})
    return fault


def cut(job: Job, moment: Draw) -> Fault:
    """Cuts the link between two hosts, until both workers have ended."""
    host = job.hosts[int(moment.picks[0] * len(job.hosts))]
    fault = Fault("link cut", moment.kind)
    began = time.monotonic()
    host.set_link("down")
    _await_end(job.workers(), fault)
    fault.detect_secs = time.monotonic() - began
    _look(job, fault)
    waiting.wait(job.is_over, DETECT_SECS)
    host.set_link("up")
    _check_words(job, fault, set())
    return fault


def fill_disk(job: Job, moment: Draw) -> Fault:
    """Leaves no room on the disk until the job has said so, or has ended."""
    folder = job.model_dir.parent
    fault = Fault("disk full", moment.kind)
    told = job.output().count(_NOT_WRITTEN)
    began = time.monotonic()
    disk.fill(folder)
    waiting.wait(
        lambda: job.output().count(_NOT_WRITTEN) > told or job.is_over(),
        job.place.timeout_secs,
    )
    fault.detect_secs = time.monotonic() - began
    if job.output().count(_NOT_WRITTEN) == told:
        fault.problems.append("nothing was said of a full disk")
    if "--checkpoint_errors=continue" not in job.flags:
        waiting.wait(job.is_over, DETECT_SECS)
    _look(job, fault)
    disk.clear(folder)
    fault.is_over = job.is_over()
    _check_codes(job, fault)
    if not fault.is_over:
        _await_checkpoint(job, fault)
    return fault


# Metrics, summaries or a checkpoint: whatever comes first.
_NOT_WRITTEN = "could not be written"


def _await_checkpoint(job: Job, fault: Fault) -> None:
    began, newest = time.monotonic(), job.checkpoints()[-1:]
    waiting.wait(
        lambda: job.checkpoints()[-1:] > newest or job.is_over(),
        job.place.timeout_secs,
    )
    if job.checkpoints()[-1:] > newest:
        fault.recover_secs, fault.lost_steps = time.monotonic() - began, 0
    else:
        fault.problems.append("no checkpoint after the disk had room again")


def _choose(everyone: Mapping[str, int], pick: float) -> str:
    names = sorted(everyone)
    return names[int(pick * len(names))]


def _without(pids: Mapping[str, int], name: str) -> dict[str, int]:
    return {each: pid for each, pid in pids.items() if each != name}


def _hit(
    job: Job,
    fault: Fault,
    number: signal.Signals,
    pid: int,
    others: Mapping[str, int],
) -> None:
    """Sends a signal, and waits for the end of the others."""
    began = time.monotonic()
    os.kill(pid, number)
    _await_end(others, fault)
    if others:
        fault.detect_secs = time.monotonic() - began
    if number == signal.SIGKILL:
        _await_end({"it": pid}, fault)
    _look(job, fault)


def _await_end(pids: Mapping[str, int], fault: Fault) -> None:
    """Waits for the end of processes; ends those that do not come to it."""
    ended = waiting.wait(
        lambda: not any(map(waiting.is_alive, pids.values())), DETECT_SECS
    )
    for name, pid in {} if ended else pids.items():
        if waiting.is_alive(pid):
            fault.problems.append(f"{name} still ran after {DETECT_SECS:g} s")
            os.kill(pid, signal.SIGKILL)


def _look(job: Job, fault: Fault) -> None:
    """Notes how far the job had come, and what it was doing."""
    fault.reached = job.step()
    names = job.saved_names()
    whole = {match[0][:-5] for match in map(_MARKED.fullmatch, names) if match}
    # Before the first step it may still lie there from the fault before.
    fault.during_save = fault.reached > 0 and any(
        name.partition(".")[0] not in whole for name in names
    )


def _check_words(job: Job, fault: Fault, hit: Collection[str]) -> None:
    """Whoever was not hit must have ended with 1 and a line that says why."""
    _check_codes(job, fault, hit)
    for name, code in job.codes().items():
        lost = next((each for each in job.codes() if each != name), None)
        if name in hit or not code or not lost:
            continue
        text = job.output(name)
        if text.count("train.py: ") != 1 or f"train.py: {lost} (" not in text:
            fault.problems.append(f"{name} does not name {lost}: {text[-500:]}")


def _check_codes(job: Job, fault: Fault, hit: Collection[str] = ()) -> None:
    # All may have been done but for the end of the process.
    allowed = (0, 1) if fault.reached == job.place.steps else (1,)
    for name, code in job.codes().items():
        if "Traceback" in job.output(name):
            fault.problems.append(f"{name} has left a traceback")
        if name not in hit and code is not None and code not in allowed:
            fault.problems.append(f"{name} ended with exit code {code}")
