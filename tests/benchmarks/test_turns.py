import os
import sys

import numpy as np
import pytest

from benchmarks import _turns

# Half a second a step, in words; writes down who had a turn, and how long.
_CHILD = """
import sys
print("noise of a library")
print("ready", flush=True)
for line in sys.stdin:
    with open(sys.argv[1], "a") as file:
        file.write(f"{sys.argv[2]}{line}")
    print("seconds", 0.5 * int(line), flush=True)
"""


def _member(*words: object, program: str = _CHILD) -> _turns.Member:
    return _turns.Member(
        [sys.executable, "-c", program, *map(str, words)], os.environ
    )


def test_contestants_take_turns_of_the_length_asked_for(tmp_path) -> None:
    log = tmp_path / "log"
    with (
        _turns.running([_member(log, "a"), _member(log, "b")], 8) as two,
        _turns.running([_member(log, "c")], 8) as one,
    ):
        rates = _turns.rounds({"two": two, "one": one}, seconds=3.0, count=2)
    assert {name: len(values) for name, values in rates.items()} == {
        "two": 2,
        "one": 2,
    }
    # 8 examples in half a second, by each.
    np.testing.assert_allclose(rates["two"], 32.0)
    np.testing.assert_allclose(rates["one"], 16.0)
    lines = log.read_text().split()
    assert sorted(lines[:6]) == ["a20", "a20", "b20", "b20", "c20", "c20"]
    for first in (6, 9):
        assert sorted(lines[first : first + 2]) == ["a6", "b6"]
        assert lines[first + 2] == "c6"


def test_processes_end_with_their_turns(tmp_path) -> None:
    with _turns.running([_member(tmp_path / "log", "a")], 1) as contestant:
        (process,) = contestant.processes
        assert process.poll() is None
    assert process.poll() is not None


def test_one_that_does_not_start_is_quoted() -> None:
    member = _member(program="raise SystemExit('no such thing')")
    with (
        pytest.raises(RuntimeError, match="'ready': no such thing"),
        _turns.running([member], 1),
    ):
        pass


def test_one_that_ends_in_its_turn_is_an_error() -> None:
    member = _member(program="print('ready', flush=True); input()")
    with (
        _turns.running([member], 1) as contestant,
        pytest.raises(RuntimeError, match="before it said 'seconds'"),
    ):
        _turns.take(contestant, 1)
