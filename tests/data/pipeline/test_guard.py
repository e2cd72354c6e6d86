from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from data import DataConfig
from data.pipeline import guard
from errors import RunError

WHERE = "no good\n [[while/body/IteratorGetNext]]"


def _find(found: str = "example 7: torn") -> tuple[Callable[..., str], list]:
    asked: list[Any] = []

    def find_bad(split: str, **where: Any) -> str:
        asked.append((split, where))
        return found

    return find_bad, asked


def _fail(message: str = WHERE) -> Callable[..., Any]:
    def fail(*_: int) -> None:
        raise tf.errors.InvalidArgumentError(None, None, message)

    return fail


def _guard(
    train: Callable[..., Any],
    find_bad: Callable[..., str],
    skip: int = 0,
    step: Callable[[], int] = lambda: 20,
) -> Callable[[int], dict]:
    config = DataConfig(skip_bad_examples=skip)
    return guard.guard_train(train, find_bad, config, seed=3, step=step)


def test_training_ends_with_one_line_at_a_bad_example() -> None:
    find_bad, asked = _find()
    steps = iter([20, 24, 24])
    guarded = _guard(_fail(), find_bad, step=lambda: next(steps))

    with pytest.raises(RunError, match=r"^cannot read example 7: torn\. M.*k"):
        guarded(10)

    # The step that failed may have been counted or not.
    assert asked == [("train", {"seed": 3, "steps": range(23, 25)})]


def test_an_evaluation_ends_with_one_line_at_a_bad_example() -> None:
    find_bad, asked = _find()

    with pytest.raises(RunError, match="cannot read example 7: torn"):
        guard.guard_eval(_fail(), find_bad)()

    assert asked == [("eval", {})]


@pytest.mark.parametrize(
    ("message", "found", "is_asked"),
    [("out of memory", "example 7", False), (WHERE, "", True)],
    ids=["not_the_input", "reads_well_now"],
)
def test_other_errors_pass(message: str, found: str, is_asked: bool) -> None:
    find_bad, asked = _find(found)

    with pytest.raises(tf.errors.InvalidArgumentError):
        _guard(_fail(message), find_bad)(10)
    with pytest.raises(tf.errors.InvalidArgumentError):
        guard.guard_eval(_fail(message), find_bad)()

    assert bool(asked) == is_asked


def test_what_works_passes() -> None:
    find_bad, asked = _find()

    assert _guard(lambda n: {"loss": n}, find_bad)(4) == {"loss": 4}
    assert guard.guard_eval(lambda: {"loss": 2.0}, find_bad)() == {"loss": 2}
    assert asked == []


@pytest.mark.parametrize("found", ["example 7: torn", ""])
def test_one_skipped_example_too_many_ends_the_run(found: str) -> None:
    find_bad, asked = _find(found)
    now = [0]

    def train(num_steps: int) -> dict[str, float]:
        now[0] += num_steps
        return {"skipped_examples": 2.0}

    guarded = _guard(train, find_bad, skip=5, step=lambda: now[0])
    for _ in range(2):
        assert guarded(10) == {"skipped_examples": 2.0}

    with pytest.raises(
        RunError,
        match=r"met 6 examples.*skip_bad_examples=5, up to step 30"
        + (f"; one is {found}" if found else r"\. Mend"),
    ):
        guarded(10)

    assert asked == [("train", {"seed": 3, "steps": range(20, 30)})]
