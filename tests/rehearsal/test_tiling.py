"""Cutting and joining against slices by hand."""

import numpy as np
import pytest

from rehearsal import tiling

ARRAY = np.arange(2 * 4 * 6).reshape(2, 4, 6)


def test_each_device_has_its_tile() -> None:
    # Device 0 has the lower left quarter, 1 the upper left one.
    layout = np.array([[[1], [2]], [[0], [3]]])
    parts = list(tiling.split(ARRAY, layout, 4))
    assert len(parts) == 8
    np.testing.assert_array_equal(parts[0], ARRAY[0, 2:, :3])
    np.testing.assert_array_equal(parts[1], ARRAY[0, :2, :3])
    np.testing.assert_array_equal(parts[6], ARRAY[1, :2, 3:])


def test_the_last_axis_of_a_layout_is_copies() -> None:
    layout = np.array([[[0, 2], [1, 3]]])
    parts = list(tiling.split(ARRAY, layout, 4))
    np.testing.assert_array_equal(parts[0], parts[2])
    np.testing.assert_array_equal(parts[3], ARRAY[0, :, 3:])


@pytest.mark.parametrize(
    "layout",
    [
        None,
        np.array([[[1], [2]], [[0], [3]]]),
        np.array([[[0, 2], [1, 3]]]),
        np.array([[[3]], [[2]], [[1]], [[0]]]),
    ],
    ids=["whole", "quarters", "copies", "rows"],
)
def test_joining_undoes_splitting(layout: np.ndarray | None) -> None:
    parts = list(tiling.split(ARRAY, layout, 4))
    np.testing.assert_array_equal(tiling.join(parts, layout, 2), ARRAY)


def test_scalars_have_no_axis_to_split() -> None:
    scalars = np.array([1.5, 2.5])
    parts = list(tiling.split(scalars, None, 2))
    assert [part.shape for part in parts] == [()] * 4
    np.testing.assert_array_equal(tiling.join(parts, None, 2), scalars)


def test_the_holder_is_asked_for_the_whole() -> None:
    parts = [np.zeros(2), np.ones(2), np.zeros(2), np.ones(2)]
    whole = tiling.join(parts, None, 2, holder=1)
    np.testing.assert_array_equal(whole, np.ones([2, 2]))


def test_unequal_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="axis of 4 does not split into 3"):
        list(tiling.split(ARRAY, np.array([[[0]], [[1]], [[2]]]), 3))
