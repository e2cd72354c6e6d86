"""Reads an export again: any of its forms, as one function on arrays.

A `.keras` file is read in Keras's safe mode: what it names must be registered,
and no code in it is run. A SavedModel and an ONNX file are programs of
TensorFlow's and ONNX Runtime's operations. They hold no Python, but those of a
SavedModel may read and write files: load only what you trust.
"""

import dataclasses
import importlib.util
import re
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from errors import RequestError
from errors import RunError

Arrays = Mapping[str, np.ndarray]
_SIGNATURE = "serving_default"
# The first of several, where operations failed side by side.
_ROOT_ERROR = re.compile(r"\(0\) [A-Z_]+: *(.+)")
_ONNX_DTYPES = {"float": "float32", "double": "float64"}


@dataclasses.dataclass(frozen=True)
class Input:
    """What one input takes, as of one row."""

    shape: tuple[int | None, ...]
    """None where any length will do."""
    dtype: np.dtype[Any]


@dataclasses.dataclass(frozen=True)
class Exported:
    """An export that was read."""

    inputs: Mapping[str, Input]
    run: Callable[[Arrays], Arrays]
    """Name → `[B, …]` to name → `[B, …]`, for any B; bfloat16 as float32,
    since NumPy's files have no word for it. Raises `RequestError` for values
    that the model does not take, `RunError` if it fails otherwise."""


def load(path: str) -> Exported:
    """Reads `model.keras`, `model.onnx` or the folder of a SavedModel.

    Raises:
        RequestError: if it is none of these, or cannot be read.
    """
    if path.endswith(".keras"):
        model = _from_keras(load_keras(path), path)
    elif path.endswith(".onnx"):
        model = _from_onnx(path)
    elif tf.io.gfile.exists(tf.io.gfile.join(path, "saved_model.pb")):
        model = _from_saved_model(path)
    else:
        raise RequestError(
            f"{path}: must be an export: model.keras, model.onnx, or the "
            "folder saved_model."
        )
    return Exported(model.inputs, lambda arrays: _run(model, arrays, path))


def load_keras(path: str) -> keras.Model:
    """Reads a `.keras` file in safe mode.

    Raises:
        RequestError: if it cannot be read.
    """
    if not tf.io.gfile.exists(path):
        raise RequestError(f"{path}: there is no such file.")
    try:
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    # A file may be broken in any way.
    except Exception as error:
        raise RequestError(
            f"{path} cannot be read in safe mode: {reason(error)}; import the "
            "module that registers its layers, or export saved_model."
        ) from error


def reason(error: Exception) -> str:
    """Returns the first sentence of the innermost of Keras's reasons."""
    text = str(error).strip().rpartition("Exception encountered: ")[2]
    return text.partition("\n")[0].partition(". ")[0].rstrip(".")


def _run(model: Exported, arrays: Arrays, path: str) -> Arrays:
    try:
        return model.run(arrays)
    # ONNX Runtime's exceptions have no common public class.
    except Exception as error:
        kind = type(error)
        if not kind.__module__.startswith(("tensorflow", "onnxruntime")):
            raise
        # InvalidArgumentError of the one, InvalidArgument of the other.
        if kind.__name__.startswith("InvalidArgument"):
            raise RequestError(
                f"{path} does not take these inputs: {_cause(error)}."
            ) from error
        raise RunError(f"{path} failed: {_cause(error)}.") from error


def _cause(error: Exception) -> str:
    """Returns the reason among places in graphs and in Python."""
    text = str(error).rpartition("Status Message: ")[2]
    root = _ROOT_ERROR.search(text)
    # Places are indented, and come before the reason or within brackets.
    lines = [line for line in text.split("\n") if line[:1].strip()]
    words = root[1] if root else lines[-1] if lines else type(error).__name__
    return words.partition(" [Op:")[0].rstrip(".")


def _from_keras(model: keras.Model, path: str) -> Exported:
    flat = getattr(model, "inputs", None)
    if not flat:
        raise RequestError(
            f"{path}: does not say which shapes it takes, as it was made by a "
            "class of its own; export saved_model instead."
        )
    structure: Any = getattr(model, "input", None)
    named = isinstance(structure, Mapping)
    tensors = structure if named else {each.name: each for each in flat}
    specs = {
        name: tf.TensorSpec(each.shape, each.dtype)
        for name, each in tensors.items()
    }

    @tf.function(autograph=False, input_signature=[specs])
    def call(arrays: Mapping[str, tf.Tensor]) -> Any:
        values = [arrays[name] for name in specs]
        single = values[0] if len(values) == 1 else values
        return model(dict(arrays) if named else single, training=False)

    return Exported(
        {name: _input(spec) for name, spec in specs.items()},
        lambda arrays: _named(call(dict(arrays))),
    )


def _from_saved_model(path: str) -> Exported:
    try:
        loaded = tf.saved_model.load(path)
        signature = loaded.signatures[_SIGNATURE]
    except (OSError, KeyError, tf.errors.OpError) as error:
        raise RequestError(
            f"{path} cannot be read as a SavedModel with a signature "
            f"{_SIGNATURE}: {reason(error)}."
        ) from error
    specs = signature.structured_input_signature[1]

    def run(arrays: Arrays) -> Arrays:
        # The signature alone does not keep its weights alive.
        assigned = loaded.signatures[_SIGNATURE]
        return _named(assigned(**{k: tf.constant(arrays[k]) for k in specs}))

    return Exported({name: _input(spec) for name, spec in specs.items()}, run)


def _from_onnx(path: str) -> Exported:
    if importlib.util.find_spec("onnxruntime") is None:
        raise RequestError(
            f"{path}: onnxruntime cannot be imported; install the extra "
            "`onnx`, as in pip install -e '.[cpu,onnx]'."
        )
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # What it raises, it would also print.
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    # Its exceptions have no common public class.
    except Exception as error:
        raise RequestError(
            f"{path} cannot be read: {reason(error)}."
        ) from error
    inputs = {}
    for each in session.get_inputs():
        shape = [n if isinstance(n, int) else None for n in each.shape[1:]]
        word = each.type.removeprefix("tensor(").removesuffix(")")
        dtype = np.dtype(_ONNX_DTYPES.get(word, word))
        inputs[each.name] = Input(tuple(shape), dtype)
    names = [each.name for each in session.get_outputs()]

    def run(arrays: Arrays) -> Arrays:
        outputs = session.run(None, dict(arrays))
        return dict(zip(names, outputs, strict=True))

    return Exported(inputs, run)


def _input(spec: tf.TensorSpec) -> Input:
    return Input(tuple(spec.shape[1:]), np.dtype(spec.dtype.as_numpy_dtype))


def _named(outputs: Any) -> Arrays:
    """Returns outputs of any structure by name, in NumPy."""
    if not isinstance(outputs, Mapping):
        flat = tf.nest.flatten(outputs)
        outputs = {f"output_{i}": value for i, value in enumerate(flat)}
    return {
        name: (
            tf.cast(value, tf.float32) if value.dtype == tf.bfloat16 else value
        ).numpy()
        for name, value in outputs.items()
    }
