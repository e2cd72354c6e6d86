"""Exports of a run predict what the run does, by way of files."""

import importlib.util
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest

import predict
import train
from data import DataConfig
from data import linear_systems
from data.pipeline import distribute
from data.pipeline import prepare
from errors import RequestError
from flags.command_line import Configs
from model import ModelConfig
from tests.processes import ROOT
from training import RunConfig
from training import TrainConfig
from training import checkpoint
from training import state as state_lib
from training.predict import predict as predict_dataset

FORMS = ["keras", "saved_model"]
if importlib.util.find_spec("tf2onnx"):
    FORMS.append("onnx")
FILES = {
    "keras": "model.keras",
    "saved_model": "saved_model",
    "onnx": "model.onnx",
}
# 25 systems to predict: batches of 10 leave one of 5.
DATA = DataConfig(dataset="linear_systems:size=3,examples=2500")
MODEL = ModelConfig(model="mlp")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of ten steps, exported in every form."""
    folder = tmp_path_factory.mktemp("run")
    config = TrainConfig(
        train_steps=10,
        steps_per_loop=10,
        eval_every_steps=0,
        callbacks=(),
        export=tuple(FORMS),
    )
    run = RunConfig(model_dir=str(folder))
    train.run(Configs(run=run, data=DATA, model=MODEL, train=config))
    return folder


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> str:
    """The evaluation split as a file."""
    spec, rows = prepare.element_spec(linear_systems, DATA), []
    for index in range(25):
        features, _ = linear_systems.example(DATA, "eval", index)
        rows.append({name: features[name].numpy() for name in spec[0]})
    path = tmp_path_factory.mktemp("inputs") / "systems.npz"
    names = rows[0]
    np.savez(
        path, **{name: np.stack([r[name] for r in rows]) for name in names}
    )
    return str(path)


@pytest.fixture(scope="module")
def expected(trained) -> np.ndarray:
    """What the training's own prediction says on its evaluation data."""
    import tensorflow as tf

    from model import mlp

    strategy = tf.distribute.OneDeviceStrategy("cpu:0")
    spec = prepare.element_spec(linear_systems, DATA)
    with strategy.scope():
        model = mlp.build(MODEL, spec, 3)
        state = state_lib.create(model, TrainConfig())
    variables = state.evaluated_variables()
    checkpoint.restore(strategy, variables, str(trained))
    dataset = distribute.eval_dataset(strategy, linear_systems, DATA)
    steps = prepare.num_eval_steps(linear_systems, DATA)
    return predict_dataset(strategy, model, dataset, steps)


@pytest.mark.parametrize("kind", [".npy", ".csv"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_predicts_what_the_training_does(
    tmp_path, trained, inputs, expected, form, kind
) -> None:
    path = str(tmp_path / f"predictions{kind}")
    export = str(trained / "export" / FILES[form])
    predict.run(export, inputs, path, batch_size=10)
    if kind == ".npy":
        found = np.load(path)
    else:
        found = np.loadtxt(path, delimiter=",")
    assert found.shape == (25, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_user_starts_it_by_its_name(tmp_path, trained, inputs) -> None:
    path = str(tmp_path / "predictions.csv")
    words = [str(trained / "export" / "model.keras"), inputs, path]
    done = subprocess.run(
        [sys.executable, "-m", "predict", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{path}: [25, 3]\n"


def _double(tmp_path, dtype: str = "float32", flat: bool = False) -> str:
    inputs = keras.Input([2, None], name="features", dtype=dtype)
    outputs = keras.ops.multiply(inputs[..., 0] if flat else inputs, 2)
    keras.Model(inputs, outputs).save(tmp_path / "model.keras")
    return str(tmp_path / "model.keras")


def _predict(tmp_path, array, kind: str = ".npy", dtype: str = "float32"):
    np.save(tmp_path / "inputs.npy", array)
    path = tmp_path / f"predictions{kind}"
    export = _double(tmp_path, dtype)
    predict.run(export, str(tmp_path / "inputs.npy"), str(path))
    return np.load(path)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64", "float32"])
def test_numbers_of_any_type_are_taken(tmp_path, dtype) -> None:
    array = np.arange(12).reshape(3, 2, 2).astype(dtype)
    np.testing.assert_array_equal(_predict(tmp_path, array), 2.0 * array)


@pytest.mark.parametrize(
    ("array", "dtype", "message"),
    [
        (
            np.ones([3, 5, 1]),
            "float32",
            r"features is float64 \[3, 5, 1\]; .* float32 \[rows, 2, any\]\.",
        ),
        (np.ones([3, 2]), "float32", r"float64 \[3, 2\]; the model takes"),
        (np.float32(1), "float32", r"float32 \[\]; the model takes"),
        (np.full([3, 2, 2], "a"), "float32", "features is <U1"),
        (np.full([3, 2, 2], 0.5), "int32", "takes int32"),
        (np.ones([0, 2, 2]), "float32", "has 0 rows"),
    ],
    ids=["shape", "rank", "scalar", "words", "fractions", "none"],
)
def test_what_the_model_does_not_take_is_refused(
    tmp_path, array, dtype, message
) -> None:
    with pytest.raises(RequestError, match=message):
        _predict(tmp_path, array, dtype=dtype)


@pytest.mark.parametrize(
    ("array", "dtype", "message"),
    [
        (np.full([3, 2, 2], 2**32 + 1), "int32", "has 4294967297; .* int32,"),
        (np.full([3, 2, 2], 2**31, "u4"), "int32", "has 2147483648; .* int32,"),
        (np.full([3, 2, 2], 1e300), "float32", r"has 1e\+300; .* float32,"),
        (np.full([3, 2, 2], 70000), "float16", "has 70000; .* float16,"),
    ],
    ids=["int64", "uint32", "float64", "half"],
)
def test_numbers_out_of_range_are_refused(
    tmp_path, array, dtype, message
) -> None:
    array[0] = 1
    with pytest.raises(RequestError, match=f"features {message} which ends"):
        _predict(tmp_path, array, dtype=dtype)


def test_infinite_numbers_are_taken(tmp_path) -> None:
    array = np.full([3, 2, 2], [np.inf, np.nan])
    np.testing.assert_array_equal(_predict(tmp_path, array), array)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("end", "cannot be read: File is not a zip file."),
        ("bits", "cannot be read: "),
        ("text", "readme.txt is no array; leave it out."),
    ],
)
def test_a_damaged_archive_is_one_sentence(
    tmp_path, capsys, damage, message
) -> None:
    path = tmp_path / "inputs.npz"
    np.savez_compressed(path, features=np.random.rand(100, 2, 2))
    content = bytearray(path.read_bytes())
    if damage == "end":
        path.write_bytes(content[:-100])
    elif damage == "bits":
        content[200:202] = bytes([content[200] ^ 255, content[201] ^ 255])
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("readme.txt", "hello")
    words = [str(path), str(tmp_path / "predictions.npy")]
    assert predict.main(["model.keras", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"predict: {path}")
    assert message in error
    assert error.count("\n") == 1


def test_objects_are_not_unpickled(tmp_path) -> None:
    np.save(tmp_path / "inputs.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(RequestError, match="cannot be read: Object arrays"):
        predict.run(
            _double(tmp_path),
            str(tmp_path / "inputs.npy"),
            str(tmp_path / "predictions.npy"),
        )


def test_several_inputs_go_by_name(tmp_path, trained, inputs) -> None:
    export = str(trained / "export" / "model.keras")
    path = str(tmp_path / "predictions.npy")
    with np.load(inputs) as file:
        arrays = dict(file)
    np.savez(tmp_path / "inputs.npz", matrix=arrays["matrix"])
    with pytest.raises(RequestError, match=r"no array vector; .*, by name in"):
        predict.run(export, str(tmp_path / "inputs.npz"), path)
    arrays["vector"] = arrays["vector"][1:]
    np.savez(tmp_path / "inputs.npz", **arrays)
    with pytest.raises(RequestError, match="has 24 and 25 rows"):
        predict.run(export, str(tmp_path / "inputs.npz"), path)


def test_several_outputs_need_a_file_for_several(tmp_path) -> None:
    inputs = keras.Input([2], name="features")
    outputs = {"same": inputs, "twice": keras.ops.multiply(inputs, 2)}
    export, array = str(tmp_path / "model.keras"), np.ones([3, 2], "f4")
    keras.Model(inputs, outputs).save(export)
    np.save(tmp_path / "inputs.npy", array)
    words = [export, str(tmp_path / "inputs.npy")]
    predict.run(*words, str(tmp_path / "predictions.npz"))
    with np.load(tmp_path / "predictions.npz") as file:
        np.testing.assert_array_equal(file["same"], array)
        np.testing.assert_array_equal(file["twice"], 2 * array)
    with pytest.raises(RequestError, match="gives same, twice; write"):
        predict.run(*words, str(tmp_path / "predictions.npy"))


def test_a_table_has_two_axes(tmp_path) -> None:
    with pytest.raises(RequestError, match=r"\[3, 2, 2\] are no table"):
        _predict(tmp_path, np.ones([3, 2, 2]), ".csv")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.h5", "x.npy", "y.npy"], "model.h5: must be an export"),
        (["m.keras", "x.txt", "y.npy"], "x.txt: must be a .npy or .npz file"),
        (["m.keras", "gone.npy", "y.npy"], "gone.npy cannot be read"),
        (["m.keras", "broken.npz", "y.npy"], "broken.npz cannot be read"),
        (["m.keras", "x.npy", "y.txt"], "y.txt: must end in one of"),
        (["m.keras", "x.npy", "gone/y.npy"], "there is no folder gone"),
        (["m.keras", "x.npy", "y.npy", "--batch_size=0"], "must be 1 or more"),
        (["m.keras", "x.npy", "y.npy", "--module=no.such"], "--module=no.such"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_code_two(
    tmp_path, monkeypatch, capsys, words, message
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones([3, 2]))
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    assert predict.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("predict: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch, capsys) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savetxt", full)
    np.save(tmp_path / "x.npy", np.ones([3, 2, 1]))
    words = [str(tmp_path / "x.npy"), str(tmp_path / "y.csv")]
    assert predict.main([_double(tmp_path, flat=True), *words]) == 1
    assert "y.csv cannot be written: No space" in capsys.readouterr().err
