import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from errors import RunError
from training import EXPORTS
from training import TrainConfig
from training import export
from training import exported
from training import initial_model
from training import state as state_lib

HAS_ONNX = importlib.util.find_spec("tf2onnx") is not None
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason="needs the extra `onnx`")
FORMS = [
    "keras",
    "saved_model",
    pytest.param("onnx", marks=needs_onnx),
]
FILES = {
    "keras": "model.keras",
    "saved_model": "saved_model",
    "onnx": "model.onnx",
}
each_form = pytest.mark.parametrize("form", FORMS)


def _build() -> keras.Model:
    inputs = keras.Input([2], name="features")
    return keras.Model(inputs, keras.layers.Dense(3, name="dense")(inputs))


def _product() -> keras.Model:
    """Of two named features, with a weight so that it can be trained."""
    inputs = {
        "matrix": keras.Input([3, 3], name="matrix"),
        "vector": keras.Input([3], name="vector"),
    }
    column = keras.layers.Reshape([3, 1])(inputs["vector"])
    product = keras.layers.Flatten()(keras.ops.matmul(inputs["matrix"], column))
    return keras.Model(inputs, keras.layers.Dense(2, name="dense")(product))


def _state(strategy, build=_build, **config) -> state_lib.TrainState:
    with strategy.scope():
        return state_lib.create(build(), TrainConfig(**config))


def test_every_form_is_tested() -> None:
    assert set(FILES) == set(EXPORTS)


@pytest.mark.parametrize("replicas", [1, 2])
@each_form
def test_gives_the_same_predictions_for_any_number_of_rows(
    tmp_path, strategy_of, replicas, form
) -> None:
    strategy = strategy_of(replicas)
    state = _state(strategy)
    kernel, bias = state.model.get_weights()
    export.save(strategy, _build, state, str(tmp_path), [form])
    loaded = exported.load(str(tmp_path / "export" / FILES[form]))
    assert set(loaded.inputs) == {"features"}
    for rows in (1, 3, 1000):
        features = np.random.RandomState(0).rand(rows, 2).astype(np.float32)
        [received] = loaded.run({"features": features}).values()
        np.testing.assert_allclose(received, features @ kernel + bias, 1e-5)


@each_form
def test_features_keep_their_names(tmp_path, strategy_of, form) -> None:
    state = _state(strategy_of(1), _product)
    kernel, bias = state.model.get_weights()
    export.save(strategy_of(1), _product, state, str(tmp_path), [form])
    loaded = exported.load(str(tmp_path / "export" / FILES[form]))
    random = np.random.RandomState(0)
    for rows in (1, 3):
        features = {
            "vector": random.rand(rows, 3).astype(np.float32),
            "matrix": random.rand(rows, 3, 3).astype(np.float32),
        }
        [received] = loaded.run(features).values()
        product = np.einsum(
            "bij,bj->bi", features["matrix"], features["vector"]
        )
        np.testing.assert_allclose(received, product @ kernel + bias, 1e-4)


def test_a_saved_model_needs_nothing_of_ours(tmp_path, strategy_of) -> None:
    state = _state(strategy_of(1))
    export.save(strategy_of(1), _build, state, str(tmp_path), ["saved_model"])
    loaded = tf.saved_model.load(str(tmp_path / "export" / "saved_model"))
    signature = loaded.signatures["serving_default"]
    specs = signature.structured_input_signature[1]
    assert specs["features"].shape.as_list() == [None, 2]


def test_several_forms_are_written_at_once(tmp_path, strategy_of) -> None:
    state = _state(strategy_of(1))
    forms = ["keras", "saved_model"]
    export.save(strategy_of(1), _build, state, str(tmp_path), forms)
    written = {path.name for path in (tmp_path / "export").iterdir()}
    assert written == {"model.keras", "saved_model"}
    loaded = keras.saving.load_model(tmp_path / "export" / "model.keras")
    assert getattr(loaded, "optimizer", None) is None


def _unnamed() -> keras.Model:
    inputs = keras.Input([2])
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(4)(inputs))
    return keras.Model(inputs, keras.layers.Dense(3)(hidden))


@pytest.mark.parametrize("policy", ["float32", "float64"])
def test_layers_without_a_name_of_their_own_are_found_again(
    tmp_path, strategy_of, policy
) -> None:
    keras.config.set_dtype_policy(policy)
    strategy, state = strategy_of(1), _state(strategy_of(1), _unnamed)
    export.check(strategy, _unnamed, ["keras"])
    export.save(strategy, _unnamed, state, str(tmp_path), ["keras"])
    path = tmp_path / "export" / "model.keras"
    found = exported.load_keras(str(path)).weights
    wanted = {each.path: each.numpy() for each in state.model.weights}
    assert {each.dtype for each in found} == {policy}
    np.testing.assert_equal({w.path: w.numpy() for w in found}, wanted)
    # As a new process would.
    keras.utils.clear_session(free_memory=False)
    keras.config.set_dtype_policy(policy)
    fresh = _state(strategy, _unnamed)
    config = TrainConfig(initial_model=str(path))
    initial_model.load(strategy, fresh, config, "")
    for weight in fresh.model.weights:
        np.testing.assert_array_equal(weight, wanted[weight.path])


def test_writes_nothing_unless_asked(tmp_path, strategy_of) -> None:
    export.save(strategy_of(1), _build, None, str(tmp_path), [])
    assert not list(tmp_path.iterdir())


def test_the_average_is_what_is_exported(tmp_path, strategy_of) -> None:
    strategy = strategy_of(2)
    state = _state(strategy, ema_momentum=0.5)
    for variable, average in zip(
        state.model.trainable_variables, state.averages, strict=True
    ):
        average.assign(tf.fill(average.shape, 7.0))
        variable.assign(tf.fill(variable.shape, 3.0))
    export.save(strategy, _build, state, str(tmp_path), ["keras"])
    loaded = keras.saving.load_model(tmp_path / "export" / "model.keras")
    for value in loaded.get_weights():
        np.testing.assert_array_equal(value, 7.0)
    for value in state.model.get_weights():
        np.testing.assert_array_equal(value, 3.0)


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path, strategy_of
) -> None:
    state = _state(strategy_of(1))
    (tmp_path / "export").write_text("in the way")
    with pytest.raises(RunError, match=r"^the export could not be written: "):
        export.save(strategy_of(1), _build, state, str(tmp_path), ["keras"])


@each_form
def test_what_can_be_written_is_not_refused(
    strategy_of, form, monkeypatch
) -> None:
    tried = []
    write = export._write

    def note(model: keras.Model, folder: str, form: str) -> None:
        tried.append(folder)
        write(model, folder, form)

    monkeypatch.setattr(export, "_write", note)
    export.check(strategy_of(1), _build, [form])
    assert len(tried) == 1
    assert not tf.io.gfile.exists(tried[0])


def _never() -> keras.Model:
    raise AssertionError("no model is needed")


def test_nothing_is_tried_unless_asked(strategy_of) -> None:
    export.check(strategy_of(1), _never, [])


class Unregistered(keras.layers.Layer):
    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x


class Unread(keras.Model):
    """Has weights, yet was never called."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.kernel = self.add_weight(shape=[2, 3], name="kernel")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x @ self.kernel


def _with(layer: keras.layers.Layer) -> keras.Model:
    inputs = keras.Input([2])
    return keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)), name="odd")


def _lambda() -> keras.Model:
    return _with(keras.layers.Lambda(lambda x: 2 * x))


def _unregistered() -> keras.Model:
    return _with(Unregistered())


def _uncalled() -> keras.Model:
    model = Unread(name="odd")
    model.build([None, 2])
    return model


def _fft() -> keras.Model:
    inputs = keras.Input([2])
    real, _ = keras.ops.fft((inputs, inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(real), name="odd")


@pytest.mark.parametrize(
    ("build", "form", "message"),
    [
        (_lambda, "keras", "odd cannot .*Lambda.*; register your layers"),
        (_unregistered, "keras", "Could not locate class 'Unregistered'"),
        (_uncalled, "saved_model", "--export=saved_model: odd cannot be"),
        pytest.param(
            *(_fft, "onnx", "No Op registered.*; export saved_model"),
            marks=needs_onnx,
        ),
    ],
)
def test_what_could_not_be_read_again_is_refused(
    strategy_of, build, form, message
) -> None:
    with pytest.raises(RequestError, match=message) as refusal:
        export.check(strategy_of(1), build, [form])
    assert "\n" not in str(refusal.value)


def test_no_room_to_try_is_no_wrong_request(strategy_of, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_write", full)
    with pytest.raises(RunError, match="could not be tried: No space left"):
        export.check(strategy_of(1), _build, ["keras"])


def test_onnx_needs_its_packages(strategy_of, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"onnx and tf2onnx .*extra `onnx`"):
        export.check(strategy_of(1), _never, ["onnx"])


def test_onnx_has_no_bfloat16(strategy_of, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    keras.config.set_dtype_policy("mixed_bfloat16")
    with pytest.raises(RequestError, match="not with --dtype_policy"):
        export.check(strategy_of(1), _never, ["onnx"])
