"""Whether a job that failed is started again, and with how many workers."""

import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from errors import INTERRUPTED

# Exit code of no worker, as a shell says it.
NOT_STARTED = 127


class Failure(NamedTuple):
    """Which worker failed, how, and where the job stood."""

    worker: int
    code: int
    """Exit code, negative for a signal."""
    step: int
    """Last one in metrics.jsonl; -1: none."""
    checkpoint: int
    """Step of the newest one; -1: none."""

    def __str__(self) -> str:
        how = f"ended with exit code {self.code}"
        if self.code == NOT_STARTED:
            how = "could not be started"
        elif self.code < 0:
            name = signal.strsignal(-self.code)
            how = f"was ended by signal {-self.code} ({name})"
        step, checkpoint = (
            f"step {number}" if number >= 0 else "none"
            for number in (self.step, self.checkpoint)
        )
        return (
            f"worker {self.worker} {how} (last step reported: {step}, "
            f"newest checkpoint: {checkpoint})"
        )


class Plan(NamedTuple):
    """With how many workers to start again; 0: not at all. And why."""

    num_workers: int
    reason: str


def describe(codes: Mapping[int, int], model_dir: str) -> Failure:
    """Returns the failure of a job.

    Args:
        codes: Worker → exit code, in the order in which they ended: the first
            to fail takes the others with it.
        model_dir: Folder of the run.
    """
    failed = [w for w in codes if codes[w] not in (0, INTERRUPTED)]
    # The others notice a killed worker at once and may be seen to end before
    # it. By SIGTERM ends who was told to.
    killed = [w for w in failed if codes[w] < 0 and codes[w] != -signal.SIGTERM]
    worker = (killed or failed)[0]
    return Failure(
        worker,
        codes[worker],
        _last_step(model_dir),
        _newest_checkpoint(model_dir),
    )


def plan(
    failure: Failure,
    before: Failure | None,
    *,
    num_workers: int,
    min_workers: int,
    global_batch_size: int,
    restarts_left: int,
) -> Plan:
    """Decides how a job that failed goes on.

    Args:
        failure: What has happened.
        before: The failure before it with as many workers; None: none.
        num_workers: Workers that the job had.
        min_workers: Fewest to go on with.
        global_batch_size: What their number must divide.
        restarts_left: How often it may still be started.
    """
    is_lost = failure.code == NOT_STARTED
    if before and before.worker == failure.worker:
        is_lost = True
    fewer = range(num_workers - 1, min_workers - 1, -1)
    fitting = [n for n in fewer if global_batch_size % n == 0]
    if is_lost and fitting and restarts_left:
        return Plan(
            fitting[0],
            f"it does not come back: going on with --num_workers={fitting[0]}",
        )
    if before and before[2:] == failure[2:]:
        return Plan(0, "the failure before was at the same step: giving up")
    if not restarts_left:
        return Plan(0, "no restart is left: giving up")
    return Plan(
        num_workers, f"starting again, {restarts_left - 1} restarts left"
    )


def _last_step(model_dir: str) -> int:
    """Returns the step of the last whole line of metrics.jsonl."""
    try:
        text = Path(model_dir, "metrics.jsonl").read_text(errors="replace")
    except OSError:
        return -1
    for line in reversed(text.splitlines()):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, LookupError, TypeError):
            continue
    return -1


def _newest_checkpoint(model_dir: str) -> int:
    names = [path.name for path in Path(model_dir, "checkpoints").glob("*")]
    # Without this file of its own there is no checkpoint: see training.
    found = [re.fullmatch(r"step-(\d+)\.json", name) for name in names]
    return max((int(match[1]) for match in found if match), default=-1)
