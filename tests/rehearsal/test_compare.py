import dataclasses
import math

import numpy as np
import pytest

from errors import RunError
from model import DTYPE_POLICIES
from rehearsal import compare
from rehearsal import execute
from rehearsal.compare import Checked
from rehearsal.compare import Expected
from rehearsal.lower import Lowered

GOOD = Checked(
    replicas=1,
    devices=2,
    steps=5,
    tolerance=1e-4,
    loss_difference=1e-7,
    weight_difference=1e-5,
    weight="model/kernel",
    collectives=[],
)
# As TensorFlow writes it: an argument, a reshape, and where it lies.
MODULE = """
  func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<4xi64>) {
    %3 = stablehlo.reshape %arg1 : (tensor<4xi64>) -> tensor<4xi64>
    %4 = stablehlo.custom_call @Sharding(%3) {mhlo.sharding = "WHERE"}
"""


def check(
    monkeypatch: pytest.MonkeyPatch,
    losses: list[float],
    kernel: list[float],
    where: str = "{replicated}",
    spreads: tuple[float, ...] = (),
) -> Checked:
    """Compares with losses 2, 1 and a kernel 10, 0, and a bias of rounding."""
    received = execute.Run(
        np.array(losses, np.float32),
        {
            "model/kernel": np.array(kernel, np.float32),
            "model/bias": np.array([2e-12], np.float32),
            "step": np.array(9),
        },
        {"collectives": ["c"], "replica_differences": spreads},
    )
    monkeypatch.setattr(execute, "execute", lambda *_: received)
    expected = Expected(
        np.array([2, 1], np.float32),
        {
            "model/kernel": np.array([10, 0], np.float32),
            "model/bias": np.array([-3e-12], np.float32),
            "model/only_here": np.array([1.0]),
            "step": np.array(5),
        },
    )
    module = MODULE.replace("WHERE", where)
    names = ["step", "optimizer/slot"][: len(spreads)]
    lowered = Lowered(module, 2, names, [], [])
    return compare.check(
        lowered,
        [[], []],
        expected,
        num_features=1,
        shape=(1, 2),
        dtype="float32",
    )


def test_differences_are_parts_of_the_largest_number(monkeypatch) -> None:
    found = check(monkeypatch, [2, 1.5], [10, 0.1])
    assert found.loss_difference == pytest.approx(0.25)
    assert found.weight_difference == pytest.approx(0.01)
    assert found.weight == "model/kernel"
    assert found.collectives == ["c"]
    assert found.steps == 2
    assert not found.misplaced


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_differs(monkeypatch, value) -> None:
    found = check(monkeypatch, [2, 1], [10, value])
    assert found.weight_difference == math.inf
    with pytest.raises(RunError, match="model/kernel"):
        found.verify()


@pytest.mark.parametrize("where", ["{devices=[2]0,1}", "{maximal device=0}"])
def test_labels_must_be_whole_on_every_device(monkeypatch, where) -> None:
    found = check(monkeypatch, [2, 1], [10, 0], where)
    with pytest.raises(RunError, match=r"input 1, labels or weights, is \{"):
        found.verify()


def test_replicas_must_agree_on_what_is_trained(monkeypatch) -> None:
    found = check(monkeypatch, [2, 1], [10, 0], spreads=(0.5, 0.0))
    found.verify()  # counters of a replica's own may differ
    found = check(monkeypatch, [2, 1], [10, 0], spreads=(0.5, 1e-9))
    with pytest.raises(RunError, match="optimizer/slot is not the same"):
        found.verify()


def test_micro_batches_of_labels_must_be_whole() -> None:
    text = """func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<4xi64>) {
    %3 = stablehlo.reshape %arg1 : (tensor<4xi64>) -> tensor<4xi64>
    %4 = stablehlo.slice %3 [0:2] : (tensor<4xi64>) -> tensor<2xi64>
    %5 = stablehlo.custom_call @Sharding(%4) {mhlo.sharding = "{replicated}"}
    %6 = stablehlo.slice %3 [2:4] : (tensor<4xi64>) -> tensor<2xi64>
    %7 = stablehlo.custom_call @Sharding(%6) {mhlo.sharding = "WHERE"}
    """
    good = Lowered(text.replace("WHERE", "{replicated}"), 2, [], [], [])
    assert not compare.find_misplaced(good, 1)
    bad = Lowered(text.replace("WHERE", "{maximal device=0}"), 2, [], [], [])
    assert "{maximal device=0}" in compare.find_misplaced(bad, 1)


def test_a_loss_that_is_no_number_is_not_blamed_on_the_parts(
    monkeypatch,
) -> None:
    expected = Expected(np.array([1, math.inf]), {"model/a": np.zeros(1)})
    monkeypatch.setattr(execute, "execute", None)
    with pytest.raises(RunError, match="the loss of step 1 is not a number"):
        compare.check(
            Lowered("", 0, [], [], []),
            [[], []],
            expected,
            num_features=0,
            shape=(1, 2),
            dtype="float32",
        )


def test_good_is_good() -> None:
    GOOD.verify()
    assert GOOD.figures() == {
        "max_loss_difference": 1e-7,
        "max_weight_difference": 1e-5,
    }
    assert "1.0e-07" in GOOD.lines()[0]
    assert "1.0e-05 (model/kernel)" in GOOD.lines()[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss_difference": 2e-4}, "a loss of the partitioned step differs"),
        ({"weight_difference": 2e-4}, "model/kernel of the partitioned step"),
        ({"loss_difference": math.nan}, "a loss of the partitioned step"),
    ],
)
def test_a_difference_above_the_tolerance_is_refused(change, words) -> None:
    with pytest.raises(RunError, match=words):
        dataclasses.replace(GOOD, **change).verify()


def test_every_dtype_of_a_computation_has_a_tolerance() -> None:
    computed = {name.removeprefix("mixed_") for name in DTYPE_POLICIES}
    assert computed == set(compare.TOLERANCES)
