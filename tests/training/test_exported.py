"""Reading again what `test_export` writes; refusals."""

import importlib.util
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from errors import RunError
from training import export
from training import exported


def _model(name: str = "features") -> keras.Model:
    inputs = keras.Input([2], name=name)
    twice = keras.layers.Rescaling(2.0, name="twice")(inputs)
    thrice = keras.layers.Rescaling(3.0, name="thrice")(inputs)
    return keras.Model(inputs, {"a": twice, "b": thrice})


@pytest.mark.parametrize("form", ["keras", "saved_model"])
def test_several_outputs_keep_their_names(tmp_path, form) -> None:
    path = tmp_path / "model.keras"
    if form == "keras":
        _model().save(path)
    else:
        path = tmp_path / "saved_model"
        _model().export(path, format="tf_saved_model", verbose=False)
    loaded = exported.load(str(path))
    assert loaded.inputs["features"] == exported.Input(
        (2,), np.dtype("float32")
    )
    ones = np.ones([5, 2], np.float32)
    outputs = loaded.run({"features": ones})
    np.testing.assert_array_equal(outputs["a"], 2 * ones)
    np.testing.assert_array_equal(outputs["b"], 3 * ones)


@pytest.mark.parametrize("form", ["keras", "saved_model", "onnx"])
def test_values_that_the_model_does_not_take_are_one_sentence(
    tmp_path, capfd, form
) -> None:
    if form == "onnx":
        pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
        pytest.importorskip("tf2onnx", reason="needs the extra `onnx`")
    inputs = keras.Input([2], dtype="int32", name="features")
    words = keras.layers.Embedding(4, 3, name="words")(inputs)
    model = keras.Model(inputs, words)
    export._write(model, str(tmp_path), form)
    [path] = tmp_path.iterdir()
    loaded = exported.load(str(path))
    loaded.run({"features": np.full([3, 2], 3, "i4")})
    capfd.readouterr()
    with pytest.raises(
        RequestError, match=rf"{path.name} does .*: ind.*9 "
    ) as e:
        loaded.run({"features": np.full([3, 2], 9, "i4")})
    assert "\n" not in str(e.value)
    assert not capfd.readouterr().err


_PLACES = "Graph execution error:\n\nDetected at node a\n  File b\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            tf.errors.ResourceExhaustedError(
                None, None, f"{_PLACES}no room\n\t [[{{{{node a}}}}]] [Op:a]"
            ),
            r"^a\.keras failed: no room\.$",
        ),
        (
            tf.errors.InternalError(
                None,
                None,
                f"{_PLACES}2 root error(s) found.\n  (0) INTERNAL:  one\n"
                "\t [[a]]\n  (1) INTERNAL:  two\n0 derived errors ignored.",
            ),
            r"^a\.keras failed: one\.$",
        ),
        (
            tf.errors.UnknownError(None, None, ""),
            r"^a\.keras failed: UnknownError\.$",
        ),
    ],
    ids=["places", "several", "silent"],
)
def test_a_model_that_fails_is_one_sentence(
    monkeypatch, error, message
) -> None:
    def fail(arrays: exported.Arrays) -> exported.Arrays:
        raise error

    broken = exported.Exported({}, fail)
    monkeypatch.setattr(exported, "load_keras", lambda path: None)
    monkeypatch.setattr(exported, "_from_keras", lambda *_: broken)
    with pytest.raises(RunError, match=message):
        exported.load("a.keras").run({})


def test_what_a_layer_of_ones_own_raises_passes(monkeypatch) -> None:
    def fail(arrays: exported.Arrays) -> exported.Arrays:
        raise KeyError("mine")

    broken = exported.Exported({}, fail)
    monkeypatch.setattr(exported, "load_keras", lambda path: None)
    monkeypatch.setattr(exported, "_from_keras", lambda *_: broken)
    with pytest.raises(KeyError, match="mine"):
        exported.load("a.keras").run({})


@pytest.mark.parametrize("form", ["keras", "saved_model"])
def test_bfloat16_comes_as_float32(tmp_path, form) -> None:
    inputs = keras.Input([2], name="features")
    model = keras.Model(inputs, keras.ops.cast(inputs, "bfloat16"))
    export._write(model, str(tmp_path), form)
    [path] = tmp_path.iterdir()
    third = np.full([3, 2], 1 / 3, "f4")
    [received] = exported.load(str(path)).run({"features": third}).values()
    assert received.dtype == np.float32
    # 8 bits of significand.
    np.testing.assert_array_equal(received, np.full([3, 2], 171 / 512))


def test_inputs_of_a_list_go_by_the_names_of_the_tensors(tmp_path) -> None:
    first, second = keras.Input([1], name="x"), keras.Input([1], name="y")
    outputs = keras.layers.Subtract(name="minus")([first, second])
    keras.Model([first, second], outputs).save(tmp_path / "model.keras")
    loaded = exported.load(str(tmp_path / "model.keras"))
    one, four = np.full([2, 1], 1.0, "f4"), np.full([2, 1], 4.0, "f4")
    [difference] = loaded.run({"y": one, "x": four}).values()
    np.testing.assert_array_equal(difference, 4 - one)


def test_a_batch_of_another_size_is_not_traced_anew(tmp_path) -> None:
    traces = []

    @keras.saving.register_keras_serializable("tests_exported")
    class Counted(keras.layers.Layer):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            traces.append(x.shape)
            return x

    inputs = keras.Input([2], name="features")
    model = keras.Model(inputs, Counted(name="counted")(inputs))
    model.save(tmp_path / "model.keras")
    loaded = exported.load(str(tmp_path / "model.keras"))
    traces.clear()
    for rows in (1, 3, 1000):
        loaded.run({"features": np.ones([rows, 2], "f4")})
    assert len(traces) == 1


def test_code_in_a_file_is_not_run(tmp_path) -> None:
    """A Lambda holds the bytes of a Python function."""
    inputs = keras.Input([2])
    outputs = keras.layers.Lambda(lambda x: 2 * x)(inputs)
    path = str(tmp_path / "model.keras")
    keras.Model(inputs, outputs).save(path)
    with pytest.raises(RequestError, match="cannot be read in safe mode"):
        exported.load(path)


class Own(keras.Model):
    def build(self, shape: tuple[int | None, ...]) -> None:
        self.kernel = self.add_weight(shape=[2, 1], name="kernel")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x @ self.kernel


def test_a_model_that_does_not_say_its_inputs_is_refused(tmp_path) -> None:
    keras.saving.register_keras_serializable("tests_exported")(Own)
    model = Own()
    model(np.ones([1, 2], "f4"))
    model.save(tmp_path / "model.keras")
    with pytest.raises(RequestError, match=r"shapes.*export saved_model"):
        exported.load(str(tmp_path / "model.keras"))


def _broken(path, name: str) -> str:
    """Makes a file, or a folder, of this name that is no export."""
    if name == "saved_model":
        (path / name).mkdir()
        (path / name / "saved_model.pb").write_bytes(b"no graph")
    elif name == "empty.keras":
        zipfile.ZipFile(path / name, "w").close()
    elif name != "absent.keras":
        (path / name).write_bytes(b"no model")
    return str(path / name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.keras", "there is no such file"),
        ("model.keras", "cannot be read in safe mode"),
        ("empty.keras", "cannot be read in safe mode"),
        ("saved_model", "cannot be read as a SavedModel"),
        ("model.h5", "must be an export: model.keras, model.onnx"),
    ],
)
def test_what_is_no_export_is_one_sentence(tmp_path, name, message) -> None:
    with pytest.raises(RequestError, match=message) as refusal:
        exported.load(_broken(tmp_path, name))
    assert "\n" not in str(refusal.value)


def test_a_saved_model_without_signature_is_refused(tmp_path) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path / "saved_model"))
    with pytest.raises(RequestError, match="signature serving_default"):
        exported.load(str(tmp_path / "saved_model"))


def test_onnx_needs_its_runtime(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"onnxruntime .*extra `onnx`"):
        exported.load("model.onnx")


def test_a_broken_onnx_file_is_one_sentence(tmp_path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    with pytest.raises(RequestError, match=r"model\.onnx cannot be read"):
        exported.load(_broken(tmp_path, "model.onnx"))
