"""Checkpoints: one flat map from names to values, or a clear refusal.

A checkpoint is a TensorFlow one, `<model_dir>/checkpoints/step-<step>`, with a
key for each variable of the state, so that `tf.train.load_checkpoint` reads
it anywhere. The order of layers, which Keras's own formats go by, plays no
part. Only the chief reads and writes.
"""

import json
import re
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from errors import RequestError
from training import files
from training import workers

NEWEST, BEST = "checkpoints", "best"
# TensorFlow's own suffix for an object that is a variable.
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# The index is written last: without it a checkpoint is not complete.
_INDEX = re.compile(r"step-(\d+)\.index")


def list_steps(model_dir: str, folder: str = NEWEST) -> list[int]:
    """Returns the steps of the complete checkpoints, oldest first."""
    folder = tf.io.gfile.join(model_dir, folder)
    if not tf.io.gfile.isdir(folder):
        return []
    found = map(_INDEX.fullmatch, tf.io.gfile.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def save(
    strategy: tf.distribute.Strategy,
    variables: Mapping[str, tf.Variable],
    model_dir: str,
    step: int,
    keep: int,
    folder: str = NEWEST,
) -> None:
    """Writes a checkpoint and removes those that are too old.

    Args:
        strategy: Only its chief writes; the others return at once.
        variables: Name → variable, as `TrainState.variables()` gives it.
        model_dir: Folder of the run.
        step: The step it is named for.
        keep: How many of the newest stay.
        folder: `NEWEST`, or `BEST` for one that is kept apart.

    Raises:
        RuntimeError: if a value is not finite; the last good checkpoint stays.
    """
    bad = [name for name, var in variables.items() if not _is_finite(var)]
    if bad:
        raise RuntimeError(
            f"{bad[0]} is not finite at step {step}; the checkpoint before "
            "this step stays the newest."
        )
    if not workers.is_chief(strategy):
        return
    tf.io.gfile.makedirs(tf.io.gfile.join(model_dir, folder))
    tf.train.Checkpoint(**variables).write(_path(model_dir, folder, step))
    if folder == NEWEST:
        _remove(model_dir, folder, list_steps(model_dir)[:-keep])


def save_best(
    strategy: tf.distribute.Strategy,
    variables: Mapping[str, tf.Variable],
    model_dir: str,
    best: Mapping[str, Any],
) -> None:
    """Keeps a checkpoint apart, in place of the best one before.

    Args:
        strategy: Only its chief writes.
        variables: As for `save`.
        model_dir: Folder of the run.
        best: Its `step`, and the `metric` and `value` that made it the best;
            written beside it as best.json.
    """
    save(strategy, variables, model_dir, best["step"], 1, BEST)
    if workers.is_chief(strategy):
        path = tf.io.gfile.join(model_dir, BEST, "best.json")
        files.write(path, json.dumps(best) + "\n")
        # Not the highest step stays but this one: a run that was killed may
        # have left a best of steps that are run again.
        others = set(list_steps(model_dir, BEST)) - {best["step"]}
        _remove(model_dir, BEST, others)


def restore(
    strategy: tf.distribute.Strategy,
    variables: Mapping[str, tf.Variable],
    model_dir: str,
) -> None:
    """Sets the variables to the newest checkpoint's values on every worker.

    Without a checkpoint they stay as they are.

    Args:
        strategy: All its workers must call this; the chief reads.
        variables: Name → variable. For part of a state, such as the model
            alone, the rest of the checkpoint is left alone.
        model_dir: Folder of the run.

    Raises:
        RequestError: on every worker, if the checkpoint does not fit, naming
            what differs.
    """
    values: dict[str, np.ndarray] = {}
    error = None
    steps = list_steps(model_dir) if workers.is_chief(strategy) else []
    if steps:
        try:
            values = _read(_path(model_dir, NEWEST, steps[-1]), variables)
        except RequestError as refusal:
            error = refusal
        except tf.errors.OpError as damage:
            error = RequestError(
                f"--model_dir: {_path(model_dir, NEWEST, steps[-1])} cannot "
                f"be read ({damage.message}); remove it to go on from the one "
                "before."
            )
    workers.raise_together(strategy, error)
    if not workers.total(strategy, len(values)):
        return
    specs = {
        name: tf.TensorSpec(var.shape, var.dtype)
        for name, var in variables.items()
    }
    received = workers.broadcast_values(strategy, specs, values)
    for name, variable in variables.items():
        variable.assign(received[name])


def _remove(model_dir: str, folder: str, steps: Iterable[int]) -> None:
    for step in steps:
        # The index first, so that half a checkpoint is never listed.
        for part in (".index", ".data-00000-of-00001"):
            tf.io.gfile.remove(_path(model_dir, folder, step) + part)


def _path(model_dir: str, folder: str, step: int) -> str:
    return tf.io.gfile.join(model_dir, folder, f"step-{step}")


def _is_finite(variable: tf.Variable) -> bool:
    if not variable.dtype.is_floating:
        return True
    return bool(tf.reduce_all(tf.math.is_finite(tf.identity(variable))))


def _read(
    path: str, variables: Mapping[str, tf.Variable]
) -> dict[str, np.ndarray]:
    """Reads the values of `variables`, after checking that all fit."""
    reader = tf.train.load_checkpoint(path)
    found = {
        _unescape(key): tuple(shape)
        for key, shape in reader.get_variable_to_shape_map().items()
        if key.endswith(_SUFFIX)
    }
    wanted = {name: tuple(var.shape) for name, var in variables.items()}
    # A part of the state is compared with the same part of the checkpoint.
    groups = {name.partition("/")[0] for name in wanted}
    found = {
        name: shape
        for name, shape in found.items()
        if name.partition("/")[0] in groups
    }
    if found != wanted:
        raise RequestError(
            f"--model_dir: {path} does not fit this run: "
            f"{_describe(found, wanted)}. Start with the flags it was made "
            "with (run.json beside it), or choose another --model_dir."
        )
    return {name: reader.get_tensor(_escape(name)) for name in wanted}


def _escape(name: str) -> str:
    """Returns the key under which TensorFlow writes `name`."""
    return name.replace(".", "..").replace("/", ".S") + _SUFFIX


def _unescape(key: str) -> str:
    return re.sub(
        r"\.(.)",
        lambda match: "/" if match[1] == "S" else match[1],
        key.removesuffix(_SUFFIX),
    )


def _describe(
    found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]
) -> str:
    """Returns what differs, the first few of each kind."""
    parts = [
        ("only in the checkpoint: ", sorted(found.keys() - wanted.keys())),
        ("only in this run: ", sorted(wanted.keys() - found.keys())),
        (
            "other shapes: ",
            [
                f"{name} {list(found[name])} against {list(wanted[name])}"
                for name in sorted(found.keys() & wanted.keys())
                if found[name] != wanted[name]
            ],
        ),
    ]
    return "; ".join(label + _first(names) for label, names in parts if names)


def _first(names: Iterable[str], most: int = 3) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
