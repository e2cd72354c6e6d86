import numpy as np
import pytest
import tensorflow as tf

from training import loss_scale as loss_scale_lib


def _after(*finite: bool) -> loss_scale_lib.LossScale:
    scale = loss_scale_lib.create()
    for each in finite:
        scale.update(tf.constant(each))
    return scale


def test_scaling_and_unscaling_cancel() -> None:
    scale = _after()
    assert scale.scaled(tf.constant(2.0)).numpy() == 2.0 * 2**15
    (back, none) = scale.unscale([tf.constant([3.0 * 2**15]), None])
    np.testing.assert_array_equal(back, [3.0])
    assert none is None


def test_a_bad_step_halves_and_is_counted() -> None:
    scale = _after(True, False, True, False, False)
    assert scale.logs() == {"loss_scale": 2.0**12, "skipped_steps": 3}
    assert scale.streak.numpy() == 2
    assert scale.is_skipping(2)
    assert not scale.is_skipping(3)


def test_many_good_steps_double(monkeypatch) -> None:
    monkeypatch.setattr(loss_scale_lib, "_GROWTH_STEPS", 3)
    assert _after(True, True).scale.numpy() == 2.0**15
    assert _after(True, True, True).scale.numpy() == 2.0**16
    # A bad step starts the count again.
    assert _after(True, True, False, True, True).scale.numpy() == 2.0**14
    assert _after(*[True] * 6).scale.numpy() == 2.0**17


def test_the_scale_has_a_cap_and_a_floor(monkeypatch) -> None:
    monkeypatch.setattr(loss_scale_lib, "_GROWTH_STEPS", 1)
    assert _after(*[True] * 40).scale.numpy() == 2.0**24
    assert _after(*[False] * 40).scale.numpy() == 1.0


@pytest.mark.parametrize(("bad", "stuck"), [(19, False), (20, True)])
def test_twenty_bad_steps_in_a_row_are_noticed_later_too(bad, stuck) -> None:
    scale = _after(*[False] * bad, True, True)
    assert scale.is_stuck() is stuck


def test_everything_can_be_saved() -> None:
    assert set(_after().variables()) == {
        "loss_scale/scale",
        "loss_scale/good_steps",
        "loss_scale/skipped",
        "loss_scale/streak",
    }
