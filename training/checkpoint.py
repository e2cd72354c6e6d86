"""Checkpoints: one flat map from names to values, or a clear refusal.

A checkpoint is a TensorFlow one, `<model_dir>/checkpoints/step-<step>`, with
the name of each variable of the state as its key, so that
`tf.train.load_checkpoint` reads it anywhere. The order of layers, which Keras's
own formats go by, plays no part. Only the chief reads. What is written, and how
it is checked, is in `checkpoint_files`; `checkpoint_writer` writes.
"""

import json
import re
from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from errors import RequestError
from training import CHECKPOINT
from training import checkpoint_files
from training import workers
from training.checkpoint_files import BEST
from training.checkpoint_files import NEWEST
from training.checkpoint_files import list_steps

# `NEWEST`; `BEST`; a step; or one of these two folders and a step in it.
Which = str | int | tuple[str, int]


def find(model_dir: str, word: str) -> tuple[str, Which]:
    """Reads the value of `--checkpoint`, which may be a path.

    Args:
        model_dir: Folder of the run; ignored for a path.
        word: As `RunConfig.checkpoint` allows it.

    Returns:
        The folder of the run, and what of it `restore` is to read.
    """
    match = re.fullmatch(CHECKPOINT, word)
    if match and match[2]:
        return match[1] or ".", (match[2], int(match[3]))
    if word.isdecimal():
        return model_dir, int(word)
    return model_dir, BEST if word == "best" else NEWEST


def restore(
    strategy: tf.distribute.Strategy,
    variables: Mapping[str, tf.Variable],
    model_dir: str,
    which: Which = NEWEST,
) -> int | None:
    """Sets the variables to a checkpoint's values on every worker.

    A damaged newest checkpoint is passed over for the one before, with a line
    that says so. One that is whole but does not fit never is.

    Args:
        strategy: All its workers must call this; the chief reads.
        variables: Name → variable. For part of a state, such as the model
            alone, the rest of the checkpoint is left alone.
        model_dir: Folder of the run.
        which: `NEWEST`; or another one, which must be there and whole.

    Returns:
        The step of the checkpoint. None if there is no newest one: the
        variables stay as they are.

    Raises:
        RequestError: on every worker, if there are checkpoints and none is
            whole; if the one asked for is not there; or if it does not fit,
            naming what differs.
    """
    values: dict[str, np.ndarray] = {}
    step = None
    with workers.together(strategy):
        if workers.is_chief(strategy):
            folder, step = _choose(model_dir, which)
            if step is not None:
                path = checkpoint_files.prefix(model_dir, folder, step)
                values = _read(path, variables)
    found = workers.total(strategy, 0 if step is None else step + 1)
    if not found:
        return None
    specs = {
        name: tf.TensorSpec(var.shape, var.dtype)
        for name, var in variables.items()
    }
    received = workers.broadcast_values(strategy, specs, values)
    for name, variable in variables.items():
        variable.assign(received[name])
    return found - 1


def _choose(model_dir: str, which: Which) -> tuple[str, int | None]:
    """Returns folder and step of the checkpoint to read."""
    if which == NEWEST:
        return NEWEST, _newest_whole(model_dir)
    if isinstance(which, tuple):
        folder, step = which
    elif which == BEST:
        folder, step = BEST, _best_step(model_dir)
    else:
        # The best one stays when those of its time are removed.
        kept = list_steps(model_dir)
        folder, step = NEWEST if int(which) in kept else BEST, int(which)
    if step not in list_steps(model_dir, folder):
        raise RequestError(
            f"{model_dir} has no checkpoint {_word(which)}; it has "
            f"{_list_words(model_dir)}."
        )
    path = checkpoint_files.prefix(model_dir, folder, step)
    damage = checkpoint_files.damage(path, step)
    if damage:
        raise RequestError(
            f"{path} cannot be used: {damage}; {model_dir} has "
            f"{_list_words(model_dir)}."
        )
    return folder, step


def _word(which: Which) -> str:
    return (
        "{}/step-{}".format(*which) if isinstance(which, tuple) else f"{which}"
    )


def _list_words(model_dir: str) -> str:
    """Returns what there is, as `--checkpoint` takes it."""
    steps = [str(step) for step in list_steps(model_dir)]
    best = [f"best (step {step})" for step in list_steps(model_dir, BEST)]
    return ", ".join(steps + best) or "none"


def _newest_whole(model_dir: str) -> int | None:
    """Returns the newest step that is not damaged; tells of those that are."""
    damaged: dict[int, str] = {}
    for step in reversed(list_steps(model_dir)):
        path = checkpoint_files.prefix(model_dir, NEWEST, step)
        damage = checkpoint_files.damage(path, step)
        if not damage:
            for other, reason in damaged.items():
                print(
                    f"{NEWEST}/step-{other} is damaged ({reason}); going on "
                    f"from step-{step}",
                    flush=True,
                )
            return step
        damaged[step] = damage
    if not damaged:
        return None
    reasons = [f"step-{step}: {reason}" for step, reason in damaged.items()]
    raise RequestError(
        f"--model_dir={model_dir}: every checkpoint is damaged "
        f"({_first(reasons)}); choose another --model_dir, or remove "
        f"{NEWEST} in it to start anew."
    )


def _best_step(model_dir: str) -> int:
    path = tf.io.gfile.join(model_dir, BEST, "best.json")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return int(json.loads(file.read())["step"])
    except (tf.errors.OpError, ValueError, KeyError, TypeError) as error:
        raise RequestError(
            f"{path} does not say which checkpoint is the best; {model_dir} "
            f"has {_list_words(model_dir)}."
        ) from error


def _read(
    path: str, variables: Mapping[str, tf.Variable]
) -> dict[str, np.ndarray]:
    """Reads the values of `variables`, after checking that all fit."""
    wanted = {name: tuple(var.shape) for name, var in variables.items()}
    # A part of the state is compared with the same part of the checkpoint.
    groups = {name.partition("/")[0] for name in wanted}
    try:
        reader = tf.train.load_checkpoint(path)
        found = {
            name: tuple(shape)
            for name, shape in reader.get_variable_to_shape_map().items()
            if name.partition("/")[0] in groups
        }
        if found == wanted:
            return {name: reader.get_tensor(name) for name in wanted}
    except tf.errors.OpError as error:
        raise RequestError(
            f"--model_dir: {path} cannot be read ({error.message}); try again, "
            "or choose another folder."
        ) from error
    raise RequestError(
        f"--model_dir: {path} does not fit this run: "
        f"{_describe(found, wanted)}. Start with the flags it was made "
        "with (run.json beside it), or choose another --model_dir."
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
