import json
from pathlib import Path

import pytest

from strategies.cluster import restart
from strategies.cluster.restart import NOT_STARTED
from strategies.cluster.restart import Failure


def plan(
    failure: Failure, before: Failure | None = None, **changes: int
) -> restart.Plan:
    numbers = {
        "num_workers": 4,
        "min_workers": 4,
        "global_batch_size": 64,
        "restarts_left": 3,
    }
    return restart.plan(failure, before, **{**numbers, **changes})


def test_starts_again_until_no_restart_is_left() -> None:
    failure = Failure(0, 1, 45, 40)
    assert plan(failure).num_workers == 4
    assert "2 restarts left" in plan(failure).reason
    none_left = plan(failure, restarts_left=0)
    assert none_left.num_workers == 0
    assert "no restart is left" in none_left.reason


@pytest.mark.parametrize(
    ("before", "goes_on"),
    [
        (Failure(1, -9, 45, 40), False),
        (Failure(1, -9, 44, 40), True),
        (Failure(1, -9, 45, 20), True),
    ],
    ids=["same", "other_step", "other_checkpoint"],
)
def test_two_failures_at_one_step_end_the_job(before, goes_on) -> None:
    result = plan(Failure(0, 1, 45, 40), before)
    assert bool(result.num_workers) == goes_on
    assert ("at the same step: giving up" in result.reason) != goes_on


@pytest.mark.parametrize(
    ("batch", "least", "expected"),
    [(64, 1, 2), (64, 2, 2), (60, 1, 3), (7, 1, 1), (64, 3, 0), (7, 2, 0)],
)
def test_goes_on_with_as_many_as_divide_the_batch(
    batch, least, expected
) -> None:
    """The same worker failed twice, at the same step: fewer or none."""
    failure = Failure(3, 1, -1, -1)
    result = plan(failure, failure, min_workers=least, global_batch_size=batch)
    assert result.num_workers == expected


def test_a_worker_that_cannot_be_started_is_lost_at_once() -> None:
    failure = Failure(3, NOT_STARTED, 45, 40)
    assert plan(failure, min_workers=1).num_workers == 2
    assert plan(failure).num_workers == 4
    assert plan(failure, min_workers=1, restarts_left=0).num_workers == 0


def test_fewer_workers_cost_a_restart_like_any_other() -> None:
    failure = Failure(3, 1, 45, 40)
    result = plan(failure, failure, min_workers=1, restarts_left=0)
    assert result.num_workers == 0


def test_two_workers_that_fail_in_turn_are_not_lost() -> None:
    result = plan(Failure(0, 1, 45, 40), Failure(1, 1, 44, 40), min_workers=1)
    assert result.num_workers == 4


def write_metrics(folder: Path, *lines: str) -> None:
    (folder / "metrics.jsonl").write_text("\n".join(lines))


def test_describes_the_first_to_fail_and_where_the_job_stood(tmp_path) -> None:
    steps = [json.dumps({"step": step, "loss": 1.0}) for step in (10, 20)]
    write_metrics(tmp_path, *steps, '{"step": 3')
    (tmp_path / "checkpoints").mkdir()
    for name in ("step-9.json", "step-10.json", "step-11.index", "step-12.tmp"):
        (tmp_path / "checkpoints" / name).touch()
    failure = restart.describe({2: 0, 1: -9, 0: 1}, str(tmp_path))
    assert failure == Failure(1, -9, 20, 10)
    assert str(failure) == (
        "worker 1 was ended by signal 9 (Killed) (last step reported: step "
        "20, newest checkpoint: step 10)"
    )


@pytest.mark.parametrize(
    "lines", [None, (), ("[]", "{}", "\x00\xff")], ids=["none", "empty", "bad"]
)
def test_a_job_without_a_step_has_none(tmp_path, lines) -> None:
    if lines is not None:
        write_metrics(tmp_path, *lines)
    failure = restart.describe({0: 42, 1: NOT_STARTED}, str(tmp_path))
    assert failure == Failure(1, NOT_STARTED, -1, -1)
    assert "worker 1 could not be started" in str(failure)
    assert "last step reported: none, newest checkpoint: none" in str(failure)


def test_says_an_exit_code() -> None:
    assert "worker 0 ended with exit code 1" in str(Failure(0, 1, 1, 1))


def test_the_one_that_was_killed_is_blamed_before_who_noticed(tmp_path) -> None:
    # 15 is what the launcher itself sends to the rest.
    failure = restart.describe({0: 1, 2: -15, 1: -9}, str(tmp_path))
    assert failure[:2] == (1, -9)
    failure = restart.describe({0: 1, 1: -15}, str(tmp_path))
    assert failure[:2] == (0, 1)
