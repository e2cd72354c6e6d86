import numpy as np
import pytest

from training.report import thin


def test_a_short_line_stays_as_it_is() -> None:
    steps, values = np.arange(9), np.arange(9.0)
    kept = thin.thin(steps, values, most=9)
    np.testing.assert_array_equal(kept, (steps, values))


@pytest.mark.parametrize("count", [31, 1000, 12345])
def test_few_points_of_the_line_stay_in_order(count) -> None:
    steps = np.arange(count) * 10
    values = np.sin(np.arange(count) / 7.0)
    kept, thinned = thin.thin(steps, values, most=30)
    assert len(kept) <= 32
    assert (np.diff(kept) > 0).all()
    np.testing.assert_array_equal(thinned, values[kept // 10])
    assert (kept[0], kept[-1]) == (0, steps[-1])


@pytest.mark.parametrize("at", [0, 1, 499_999, 999_999])
def test_no_extreme_is_lost(at) -> None:
    steps = np.arange(1_000_000)
    values = np.random.default_rng(0).normal(size=len(steps))
    values[at] = 1e6
    values[-1 - at] = -1e6
    _, thinned = thin.thin(steps, values, most=600)
    assert (thinned.max(), thinned.min()) == (1e6, -1e6)


@pytest.mark.parametrize("at", [0, 500, 999])
def test_no_gap_is_lost(at) -> None:
    steps, values = np.arange(1000), np.zeros(1000)
    values[at] = np.nan
    kept, thinned = thin.thin(steps, values, most=30)
    assert kept[np.isnan(thinned)].tolist() == [at]


def test_a_line_of_gaps_only() -> None:
    _, thinned = thin.thin(np.arange(100), np.full(100, np.nan), most=30)
    assert np.isnan(thinned).all()
