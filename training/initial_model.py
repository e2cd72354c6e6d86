"""Weights that a new run starts from, and layers that keep theirs.

    --initial_model=pretrained.keras:freeze=conv_*

A weight is taken if one of the same name (`conv_0/kernel`) and shape is in the
file. What else the model has, such as a head for other classes, stays at its
initial values. Frozen layers are not trained, and in them batch normalization
uses the statistics that it has, as everywhere in Keras. A run that continues
reads its checkpoint instead.
"""

import dataclasses
import fnmatch
import json
from collections.abc import Iterable
from collections.abc import Mapping
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

import options as options_lib
from errors import RequestError
from training import TrainConfig
from training import checkpoint
from training import checkpoint_files
from training import exported
from training import workers

if TYPE_CHECKING:
    from training.state import TrainState

_FLAG = "initial_model"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What may follow the colon of `--initial_model`."""

    freeze: str = ""
    """Pattern of the names of layers, such as `conv_*`, that are not trained;
    a frozen model within the model is frozen whole."""


def parse(word: str) -> tuple[str, Options]:
    """Reads `PATH:freeze=PATTERN`.

    Raises:
        RequestError: for an option that there is not.
    """
    path, colon, rest = word.rpartition(":")
    # Other colons are the path's own, as in gs://bucket/a.keras.
    if not colon or "=" not in rest or "/" in rest:
        return word, Options()
    return path, options_lib.parse(rest.split(","), Options, _FLAG)


def freeze(model: keras.Model, word: str) -> None:
    """Keeps the layers that `word` names as they are.

    Call it before the optimizer is built.

    Raises:
        RequestError: if no layer has such a name, or none is left to train.
    """
    pattern = parse(word)[1].freeze
    if not pattern:
        return
    chosen = _frozen(model, pattern)
    if not chosen:
        names = _first(each.name for each in _named_layers(model))
        raise RequestError(
            f"--{_FLAG}={word}: no layer has a name like {pattern!r}; there "
            f"are {names}."
        )
    for layer in chosen:
        layer.trainable = False
    if not model.trainable_variables:
        raise RequestError(
            f"--{_FLAG}={word}: {pattern!r} leaves no layer to train; freeze "
            "fewer."
        )


def load(
    strategy: tf.distribute.Strategy,
    state: "TrainState",
    config: TrainConfig,
    model_dir: str,
) -> None:
    """Sets the weights of a new run, on every worker, to those of a file.

    Args:
        strategy: All its workers must call this; the chief reads.
        state: Receives the weights, and averages that start from them.
        config: Without `initial_model` nothing happens.
        model_dir: Folder of the run. If it has a checkpoint, that is what the
            run continues from, and nothing happens.

    Raises:
        RequestError: on every worker, if the file cannot be read, if nothing
            in it fits, or if a layer is frozen that it does not have.
    """
    word = config.initial_model
    if not word:
        return
    wanted = {
        name.removeprefix("model/"): variable
        for name, variable in state.evaluated_variables().items()
        if name.startswith("model/")
    }
    values: dict[str, np.ndarray] = {}
    with workers.together(strategy):
        if workers.is_chief(strategy) and _is_new(model_dir):
            values = _choose(word, wanted)
            _check_frozen(state.model, word, values)
    names = workers.broadcast(strategy, json.dumps(list(values)).encode())
    specs = {
        name: tf.TensorSpec(wanted[name].shape, wanted[name].dtype)
        for name in json.loads(names)
    }
    received = workers.broadcast_values(strategy, specs, values)
    for name, value in received.items():
        wanted[name].assign(value)
    weights = state.model.trainable_variables
    for average, weight in zip(state.averages, weights, strict=False):
        average.assign(tf.identity(weight.value))


def _is_new(model_dir: str) -> bool:
    return not (model_dir and checkpoint.list_steps(model_dir))


def _named_layers(model: keras.Model) -> Iterable[keras.layers.Layer]:
    """Yields the layers, those of models within it included."""
    for layer in model.layers:
        yield layer
        yield from _named_layers(layer) if hasattr(layer, "layers") else ()


def _frozen(model: keras.Model, pattern: str) -> list[keras.layers.Layer]:
    layers = _named_layers(model)
    return [each for each in layers if fnmatch.fnmatch(each.name, pattern)]


def _check_frozen(
    model: keras.Model, word: str, values: Mapping[str, np.ndarray]
) -> None:
    """Refuses to keep weights that nobody has trained."""
    path, chosen = parse(word)
    for layer in _frozen(model, chosen.freeze):
        for weight in layer.weights:
            if weight.path not in values:
                raise RequestError(
                    f"--{_FLAG}={word}: {layer.name} is not to be trained, "
                    f"but {path} has no {weight.path} "
                    f"{list(weight.shape)}; freeze only what it has."
                )


def _choose(
    word: str, wanted: Mapping[str, tf.Variable]
) -> dict[str, np.ndarray]:
    """Returns what fits, and says what does not."""
    path = parse(word)[0]
    found = _read(path)
    shapes = {name: tuple(var.shape) for name, var in wanted.items()}
    fits = [n for n in wanted if n in found and found[n].shape == shapes[n]]
    other = [
        f"{name} {list(shapes[name])}"
        + (f" against {list(found[name].shape)}" if name in found else "")
        for name in wanted
        if name not in fits
    ]
    if not fits:
        raise RequestError(
            f"--{_FLAG}={path}: nothing in it fits; this model has "
            f"{_first(other)}, the file has "
            f"{_first(sorted(found))}; choose the same --model."
        )
    left = f"; left as new: {_first(other)}" if other else ""
    print(
        f"{path}: {len(fits)} of {len(wanted)} weights taken{left}", flush=True
    )
    return {n: found[n].astype(wanted[n].dtype.as_numpy_dtype) for n in fits}


def _read(path: str) -> dict[str, np.ndarray]:
    """Returns the weights of a `.keras` file, or of a run, by name."""
    if tf.io.gfile.isdir(path):
        return _read_run(path)
    if not path.endswith(".keras") or not tf.io.gfile.exists(path):
        raise RequestError(
            f"--{_FLAG}={path}: must be a .keras file, or the folder of a run."
        )
    model = exported.load_keras(path)
    return {variable.path: variable.numpy() for variable in model.variables}


def _read_run(model_dir: str) -> dict[str, np.ndarray]:
    """Returns what the run's best, or else newest, checkpoint evaluates."""
    folder = checkpoint_files.BEST
    steps = checkpoint.list_steps(model_dir, folder)
    if not steps:
        folder = checkpoint_files.NEWEST
        steps = checkpoint.list_steps(model_dir, folder)
    if not steps:
        raise RequestError(
            f"--{_FLAG}={model_dir}: there is no checkpoint in it; give the "
            "folder of a run that has written one, or a .keras file."
        )
    path = checkpoint_files.prefix(model_dir, folder, steps[-1])
    damage = checkpoint_files.damage(path, steps[-1])
    if damage:
        raise RequestError(
            f"--{_FLAG}: {path} cannot be used: {damage}; give another run or "
            "a .keras file."
        )
    reader = tf.train.load_checkpoint(path)
    found = {}
    for prefix in ("model/", "average/"):  # the average, if there is one
        for key in reader.get_variable_to_shape_map():
            if key.startswith(prefix):
                found[key.removeprefix(prefix)] = reader.get_tensor(key)
    return found


def _first(names: Iterable[str], most: int = 3) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
