"""Estimates against arithmetic by hand."""

import pytest

from rehearsal import chips
from rehearsal import roofline

CHIP = chips.Chip(
    hbm_bytes=100,
    cores=2,
    bytes_available=50,
    flops_per_sec=2000.0,
    hbm_bytes_per_sec=200.0,
    ici_bytes_per_sec=20.0,
)


def _reply(*collectives: tuple[str, int, int]) -> dict[str, object]:
    return {
        "flops": 3000.0,
        "bytes_accessed": 100.0,
        "collectives": [
            {"kind": kind, "bytes": size, "group_size": group}
            for kind, size, group in collectives
        ],
    }


def test_a_core_has_its_share_of_the_chip() -> None:
    found = roofline.estimate(_reply(), CHIP)
    assert found == (3.0, 1.0, 0.0, 3.0)


@pytest.mark.parametrize(
    ("collective", "sent"),
    [
        (("all-reduce", 40, 4), 2 * 30),
        (("all-gather", 40, 4), 30),
        (("reduce-scatter", 40, 4), 30),
        (("collective-permute", 40, 2), 40),
        (("all-reduce", 40, 1), 0),
    ],
    ids=lambda value: str(value),
)
def test_communication_comes_on_top(
    collective: tuple[str, int, int], sent: float
) -> None:
    found = roofline.estimate(_reply(collective), CHIP)
    assert found.communication_secs == pytest.approx(sent / 10.0)
    assert found.step_secs == pytest.approx(3.0 + sent / 10.0)


def test_scaling_compares_examples_per_core() -> None:
    points = [
        roofline.Point(num_cores=4, examples_per_step=64, step_secs=1.0),
        roofline.Point(num_cores=8, examples_per_step=128, step_secs=1.25),
    ]
    assert roofline.scaling(points) == pytest.approx([1.0, 0.8])


def test_assumptions_are_sentences() -> None:
    assert all(each.endswith(".") for each in roofline.ASSUMPTIONS)
