import numpy as np
import pytest

from training.callbacks import _picture


def _is_blue(picture: np.ndarray) -> np.ndarray:
    """Returns where a picture has the colour of what is drawn, `[H, W]`."""
    return (picture == _picture._BLUE).all(axis=-1)


def test_a_confusion_matrix_is_blue_where_the_examples_are() -> None:
    picture = _picture.confusion_matrix(np.diag([5, 7, 0]))
    side = picture.shape[0] - _picture._MARGIN
    cells = picture[:side, _picture._MARGIN : _picture._MARGIN + side]
    shares = _is_blue(cells).reshape(3, side // 3, 3, side // 3).mean((1, 3))
    np.testing.assert_array_equal(shares > 0.5, np.diag([1, 1, 0]) > 0)


@pytest.mark.parametrize("classes", [1, 2, 30, 100])
def test_any_number_of_classes_fits(classes) -> None:
    picture = _picture.confusion_matrix(np.eye(classes, dtype=np.int64))
    assert picture.dtype == np.uint8
    assert max(picture.shape) < 720


def test_points_of_equal_values_lie_on_the_diagonal() -> None:
    values = np.array([-2.0, 0.5, 3.0])
    rows, columns = np.nonzero(_is_blue(_picture.scatter(values, values)))
    side = 290
    np.testing.assert_allclose(
        columns.mean() - _picture._MARGIN, side - rows.mean(), atol=1
    )
    assert columns.min() >= _picture._MARGIN
    assert rows.max() <= side


def test_one_value_is_a_point() -> None:
    one = np.array([2.0])
    assert _is_blue(_picture.scatter(one, one)).any()


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_keep_their_pixels(channels) -> None:
    images = np.zeros([2, 2, 2, channels], np.float32)
    images[0, 0, 0] = 1
    picture = _picture.examples(images, ["3", "4 not 5"], [False, True])
    # 2x2 pixels, each 40 wide: white is where the one is, and around.
    assert (picture[3:43, 3:43] == 255).all()
    assert (picture[3:43, 43:83] == 0).all()
    assert (picture[3:83, 89:169] == 0).all()
    # The second caption alone is red.
    red = picture[..., 0] > picture[..., 1].astype(int) + 60
    assert red[83:, 86:172].any()
    assert not red[:, :86].any()


def test_five_images_take_two_rows() -> None:
    one_row, two_rows = (
        _picture.examples(np.zeros([n, 4, 2, 1]), [""] * n, [False] * n)
        for n in (4, 5)
    )
    assert two_rows.shape == (2 * one_row.shape[0], *one_row.shape[1:])
