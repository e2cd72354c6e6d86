import math
import types

import pytest
import tensorflow as tf

from training import guard
from training import loss_scale as loss_scale_lib


def _check(loss=1.0, evaluation=None, skipped=None) -> None:
    scale = None
    if skipped is not None:
        scale = loss_scale_lib.create()
        for _ in range(skipped):
            scale.update(tf.constant(False))
    state = types.SimpleNamespace(loss_scale=scale)
    guard.check(state, {"loss": loss}, evaluation or {}, 10, 13)


def test_finite_numbers_pass() -> None:
    _check()
    _check(evaluation={"loss": 2.0})
    _check(skipped=0)


@pytest.mark.parametrize("skipped", [None, 0, 2])
@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops(loss, skipped) -> None:
    with pytest.raises(RuntimeError, match="between step 11 and step 13"):
        _check(loss, skipped=skipped)


def test_a_loop_of_skipped_steps_only_passes() -> None:
    _check(math.nan, skipped=3)


def test_an_evaluation_that_is_not_finite_stops() -> None:
    with pytest.raises(RuntimeError, match="the evaluation loss became nan"):
        _check(evaluation={"loss": math.nan})


def test_twenty_skipped_in_a_row_stop() -> None:
    _check(skipped=19)
    with pytest.raises(RuntimeError, match="20 steps in a row up to step 13"):
        _check(skipped=20)
