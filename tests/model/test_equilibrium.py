import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from model import ModelConfig
from model import equilibrium

VECTOR = tf.TensorSpec([None], tf.float32)


def build(*words: str, features: object = (4, 6, 1)) -> keras.Model:
    if isinstance(features, tuple):
        features = tf.TensorSpec([None, *features], tf.float32)
    spec = (features, VECTOR, VECTOR)
    return equilibrium.build(ModelConfig(model_options=words), spec, 3)


def groups_of(model: keras.Model) -> tuple[int | None, ...]:
    return model.get_layer("groups").output.shape


def test_matches_numpy() -> None:
    model = build(
        "filters=0", "units=5", "maximum_iterations=100", "tolerance=1e-7"
    )
    x = np.random.default_rng(0).normal(size=(3, 4, 6, 1)).astype("float32")
    v, c, w, wo, bo = model.get_weights()
    embedded = np.einsum("bnk,nkm->bnm", x[..., 0], v) + c
    state = np.zeros_like(embedded)
    for _ in range(100):
        state = np.tanh(np.einsum("bnk,nkm->bnm", state, w) + embedded)
    expected = state.reshape(3, -1) @ wo + bo
    np.testing.assert_allclose(model(x), expected, rtol=0, atol=1e-5)


def test_stays_a_contraction_in_training() -> None:
    model = build("contraction=0.3", "units=8")
    layer = model.get_layer("fixed_point")

    def factors() -> np.ndarray:
        # One row of W is one column of the kernel.
        return np.abs(layer.get_weights()[0]).sum(axis=-2)

    assert np.all(factors() <= 0.3 + 1e-6)
    (weight,) = layer.trainable_variables
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.apply([-tf.ones_like(weight)], [weight])
    np.testing.assert_allclose(factors(), 0.3, rtol=1e-6)


def test_bound_leaves_small_weights_alone() -> None:
    weights = np.array([[0.1, -0.5], [0.0, 0.5]], "float32")
    capped = equilibrium.MaxAbsSum(0.5)(weights)
    np.testing.assert_allclose(capped, [[0.1, -0.25], [0.0, 0.25]])


def test_passes_its_options_on() -> None:
    model = build("maximum_iterations=7", "tolerance=0.5", "filters=2")
    layer = model.get_layer("fixed_point")
    assert (layer.settings.maximum_iterations, layer.tolerance) == (7, 0.5)
    assert model.get_layer("conv").filters == 2


@pytest.mark.parametrize(
    ("words", "features", "groups"),
    [
        (["filters=8"], (4, 6, 1), (None, 2, 24)),
        (["filters=8"], (1, 1, 3), (None, 1, 8)),
        (["filters=0"], (4, 6, 1), (None, 4, 6)),
        (["filters=0", "groups=3"], (4, 6, 1), (None, 3, 8)),
        ([], (4, 6), (None, 4, 6)),
        ([], (6,), (None, 1, 6)),
        ([], (), (None, 1, 1)),
        (
            ["groups=2"],
            {
                "a": tf.TensorSpec([None, 3, 3], tf.int32),
                "b": tf.TensorSpec([None, 3], tf.float32),
            },
            (None, 2, 6),
        ),
    ],
    ids=[
        "image",
        "pixel",
        "rows",
        "groups",
        "matrix",
        "vector",
        "scalar",
        "dict",
    ],
)
def test_groups_any_features(
    words: list[str], features: object, groups: tuple[int | None, ...]
) -> None:
    model = build(*words, features=features)
    assert groups_of(model) == groups
    assert model.output.shape == (None, 3)


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
    layer = model.get_layer("fixed_point")
    assert layer.output.dtype == hidden
    assert {tensor.dtype for tensor in layer.cell.inputs} == {hidden}
    assert model.output.dtype == outputs


def test_names_do_not_depend_on_earlier_models() -> None:
    paths = [[v.path for v in build().variables] for _ in range(2)]
    assert paths[0] == paths[1]


@pytest.mark.parametrize(
    "word",
    [
        "filters=-1",
        "groups=-1",
        "groups=7",
        "units=0",
        "maximum_iterations=0",
        "tolerance=nan",
        "contraction=1",
        "depth=3",
    ],
)
def test_rejects_options(word: str) -> None:
    with pytest.raises(RequestError, match=word.partition("=")[0]):
        build(word)
