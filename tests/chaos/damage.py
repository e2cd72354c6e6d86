"""Ten ways to damage the newest checkpoint of a job that was killed."""

import itertools
from pathlib import Path

from tests.chaos import faults
from tests.chaos.faults import Fault
from tests.chaos.jobs import Job
from tests.chaos.moments import Draw

_SUFFIXES = {
    "data": ".data-00000-of-00001",
    "index": ".index",
    "marker": ".json",
}


def _truncate(path: Path, pick: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(pick * len(content))])


def _flip(path: Path, pick: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(pick * len(content))] ^= 1 << int(pick * 8)
    path.write_bytes(content)


def _delete(path: Path, _: float) -> None:
    path.unlink()


def _empty(path: Path, _: float) -> None:
    path.write_bytes(b"")


_WAYS = {
    "truncated": _truncate,
    "flipped": _flip,
    "deleted": _delete,
    "emptied": _empty,
}
_KINDS = [*itertools.product(_WAYS, _SUFFIXES)][:10]


_turns = itertools.cycle(_KINDS)


def hit(job: Job, moment: Draw) -> Fault:
    """Kills a job and damages its newest checkpoint, in the next of the ways.

    It must say so when it starts again, and go on from the one before.
    """
    fault = faults.kill(job, moment)
    steps = job.checkpoints()
    if len(steps) < 2:
        fault.counts = False
        return fault
    way, part = next(_turns)
    path = job.model_dir / "checkpoints" / f"step-{steps[-1]}"
    _WAYS[way](Path(f"{path}{_SUFFIXES[part]}"), moment.picks[1])
    fault.what = f"{part} {way}"
    fault.next_words = [f"Continuing at step {steps[-2]} of"]
    # Without its marker it is none, not a damaged one.
    if (way, part) != ("deleted", "marker"):
        fault.next_words.append(f"step-{steps[-1]} is damaged (")
    return fault
