import numpy as np
import pytest
import tensorflow as tf

from data.augmentation import flip_and_shift
from errors import RequestError

# Each pixel tells where it comes from; shifts of up to 2 rows and 1 column.
IMAGE = np.arange(16 * 8 * 2, dtype=np.float32).reshape(16, 8, 2)


def _all_results() -> dict[bytes, tuple[bool, int, int]]:
    results = {}
    for flips in (False, True):
        image = IMAGE[:, ::-1] if flips else IMAGE
        padded = np.pad(image, [(2, 2), (1, 1), (0, 0)], mode="reflect")
        for row in range(5):
            for column in range(3):
                moved = padded[row : row + 16, column : column + 8]
                results[moved.tobytes()] = (flips, row, column)
    return results


def test_mirrors_and_shifts_by_all_amounts_and_nothing_else() -> None:
    results, seen = _all_results(), []

    augment = tf.function(flip_and_shift.augment)
    for number in range(200):
        image, label = augment(IMAGE, 7, tf.constant([1, number]))
        assert label == 7
        seen.append(results[image.numpy().tobytes()])

    # One of 30 stays out of 200 draws in 1 of 29 cases.
    assert len(set(seen)) >= 28
    assert 60 < sum(flips for flips, _, _ in seen) < 140


def test_is_a_function_of_the_seed() -> None:
    one, same = (
        flip_and_shift.augment(tf.constant(IMAGE), 0, tf.constant([3, 4]))[0]
        for _ in range(2)
    )

    np.testing.assert_array_equal(one, same)


@pytest.mark.parametrize(
    "features",
    [tf.zeros([3]), {"image": tf.zeros([8, 8, 1])}],
    ids=["vector", "dict"],
)
def test_refuses_what_is_no_image(features) -> None:
    with pytest.raises(RequestError, match="flip_and_shift: needs images"):
        flip_and_shift.augment(features, 0, tf.constant([1, 2]))
