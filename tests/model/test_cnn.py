import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from model import ModelConfig
from model import cnn

VECTOR = tf.TensorSpec([None], tf.float32)


def build(*words: str, shape: tuple[int, ...] = (5, 4, 2)) -> keras.Model:
    features = tf.TensorSpec([None, *shape], tf.float32)
    spec = (features, VECTOR, VECTOR)
    return cnn.build(ModelConfig(model_options=words), spec, 3)


def convolve(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    padded = np.pad(x, [(1, 1), (1, 1), (0, 0)])
    y = np.empty((*x.shape[:2], kernel.shape[-1]))
    for i, j in np.ndindex(*x.shape[:2]):
        window = padded[i : i + 3, j : j + 3]
        y[i, j] = np.maximum(np.einsum("hwc,hwcf->f", window, kernel) + bias, 0)
    return y


def pool(x: np.ndarray) -> np.ndarray:
    rows = [x[i : i + 2].max(0) for i in range(0, len(x), 2)]
    columns = [
        np.stack(rows)[:, j : j + 2].max(1) for j in range(0, x.shape[1], 2)
    ]
    return np.stack(columns, 1)


def test_matches_numpy() -> None:
    model = build("filters=3x2", "dropout=0.5")
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 2)).astype("float32")
    k0, b0, k1, b1, w, b = model.get_weights()
    features = [pool(convolve(pool(convolve(i, k0, b0)), k1, b1)) for i in x]
    expected = np.stack(features).reshape(2, -1) @ w + b
    np.testing.assert_allclose(model(x), expected, rtol=0, atol=1e-5)
    assert not np.allclose(model(x, training=True), model(x))


@pytest.mark.parametrize("size", [1, 8, 28])
def test_works_on_any_size(size: int) -> None:
    assert build(shape=(size, size, 1)).output.shape == (None, 3)


@pytest.mark.parametrize(
    ("policy", "hidden", "outputs"),
    [
        ("mixed_bfloat16", "bfloat16", "float32"),
        ("float64", "float64", "float64"),
    ],
    ids=["mixed_bfloat16", "float64"],
)
def test_follows_the_dtype_policy(
    policy: str, hidden: str, outputs: str
) -> None:
    keras.config.set_dtype_policy(policy)
    model = build()
    assert model.get_layer("conv_0").output.dtype == hidden
    assert model.output.dtype == outputs


def test_names_do_not_depend_on_earlier_models() -> None:
    paths = [[v.path for v in build().variables] for _ in range(2)]
    assert paths[0] == paths[1]


@pytest.mark.parametrize(
    "word", ["filters=8x0", "kernel_size=0", "dropout=1", "depth=3"]
)
def test_rejects_options(word: str) -> None:
    with pytest.raises(RequestError, match=word.partition("=")[0]):
        build(word)


def test_rejects_features_that_are_no_image() -> None:
    with pytest.raises(RequestError, match=r"--model=cnn: needs one feature"):
        build(shape=(5, 4))
