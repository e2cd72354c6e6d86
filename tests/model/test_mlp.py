import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from model import ModelConfig
from model import mlp


def spec_of(features: object) -> tuple[object, ...]:
    vector = tf.TensorSpec([None], tf.float32)
    return features, vector, vector


IMAGES = spec_of(tf.TensorSpec([None, 2, 3, 1], tf.float32))


def build(*words: str, spec: object = IMAGES) -> keras.Model:
    return mlp.build(ModelConfig(model_options=words), spec, 4)


def test_matches_numpy() -> None:
    model = build("hidden=5x6", "activation=tanh", "dropout=0.5")
    x = np.random.default_rng(0).normal(size=(3, 2, 3, 1)).astype("float32")
    w0, b0, w1, b1, w2, b2 = model.get_weights()
    hidden = np.tanh(np.tanh(x.reshape(3, 6) @ w0 + b0) @ w1 + b1)
    np.testing.assert_allclose(model(x), hidden @ w2 + b2, atol=1e-5)
    assert not np.allclose(model(x, training=True), model(x))


def test_concatenates_features_in_order_of_names() -> None:
    features = {
        "b": tf.TensorSpec([None, 2], tf.float32),
        "a": tf.TensorSpec([None, 2, 2], tf.uint8),
        "c": tf.TensorSpec([None], tf.float64),
    }
    model = build("hidden=5", "activation=linear", spec=spec_of(features))
    a, b, c = np.arange(8).reshape(2, 2, 2), np.ones([2, 2]), np.full(2, 9.0)
    outputs = model({"a": a.astype("uint8"), "b": b, "c": c})
    flat = np.concatenate([a.reshape(2, 4), b, c[:, None]], 1)
    w0, b0, w1, b1 = model.get_weights()
    np.testing.assert_allclose(
        outputs, (flat @ w0 + b0) @ w1 + b1, rtol=1e-5, atol=1e-5
    )


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
    assert model.get_layer("hidden_0").output.dtype == hidden
    assert model.output.dtype == outputs


def test_names_do_not_depend_on_earlier_models() -> None:
    paths = [[v.path for v in build().variables] for _ in range(2)]
    assert paths[0] == paths[1]


@pytest.mark.parametrize(
    "word",
    ["hidden=8x0", "activation=no", "dropout=1", "dropout=-0.1", "depth=3"],
)
def test_rejects_options(word: str) -> None:
    with pytest.raises(RequestError, match=word.partition("=")[0]):
        build(word)
