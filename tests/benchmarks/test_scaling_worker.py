import os

import pytest

from benchmarks import _turns
from benchmarks import scaling


@pytest.mark.parametrize(
    "what",
    [{}, {"strategy": "mirrored", "devices": ("cpu:0", "cpu:1")}],
    ids=["one_device", "mirrored"],
)
def test_takes_turns(what) -> None:
    contest = scaling.Contest("mlp", ("hidden=8",), (8,), examples=256)
    cores = sorted(os.sched_getaffinity(0))[:1]
    member = scaling._member(
        contest, cores=cores, compression="bfloat16", **what
    )
    with _turns.running([member], scaling.BATCH) as contestant:
        (process,) = contestant.processes
        assert sorted(os.sched_getaffinity(process.pid)) == cores
        for steps in (1, 3):
            assert _turns.take(contestant, steps) > 0
