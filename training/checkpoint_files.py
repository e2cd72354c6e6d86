"""What a checkpoint is made of, and whether it is whole.

    step-N.data-00000-of-00001   the values, as TensorFlow writes them
    step-N.index                 their names, shapes and places in the data
    step-N.json                  the marker: step, sizes and checksums

The marker comes last and goes first: without it there is no checkpoint,
whatever else lies there.
"""

import contextlib
import json
import re
import zlib
from collections.abc import Collection
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from errors import RunError
from training import files

NEWEST, BEST = "checkpoints", "best"
_RANKS = {NEWEST: "newest", BEST: "best"}
_PARTS = {"data": ".data-00000-of-00001", "index": ".index"}
_MARKER = ".json"
_NAME = re.compile(r"step-(\d+)(\.json|\.index|\.data-00000-of-00001)")
_TEMPORARY = re.compile(r"(step-\d+|best)(\.json)?\.tmp.*")
_CHUNK_BYTES = 2**20


def list_steps(model_dir: str, folder: str = NEWEST) -> list[int]:
    """Returns the steps of the complete checkpoints, oldest first."""
    found = map(_NAME.fullmatch, _list(tf.io.gfile.join(model_dir, folder)))
    return sorted(int(m[1]) for m in found if m and m[2] == _MARKER)


def prefix(model_dir: str, folder: str, step: int) -> str:
    """Returns what the names of a checkpoint's files begin with."""
    return tf.io.gfile.join(model_dir, folder, f"step-{step}")


def publish(temporary: str, path: str, step: int) -> None:
    """Gives a written checkpoint its name and its marker.

    Args:
        temporary: Prefix under which TensorFlow has written it; `path` itself
            on an object store.
        path: From `prefix`; what was there before is replaced.
        step: The step it is named for.
    """
    marker: dict[str, Any] = {"step": step}
    for part, suffix in _PARTS.items():
        marker[part] = {
            "size": tf.io.gfile.stat(temporary + suffix).length,
            "crc32": _checksum(temporary + suffix),
        }
    for suffix in _PARTS.values():
        files.publish(temporary + suffix, path + suffix)
    files.write(path + _MARKER, json.dumps(marker) + "\n")


def withdraw(path: str) -> None:
    """Removes the marker, if any: what lies there counts no longer."""
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(path + _MARKER)


def damage(path: str, step: int) -> str:
    """Returns what is wrong with a checkpoint; empty if it is whole.

    Args:
        path: From `prefix`.
        step: The step it is named for.
    """
    try:
        with tf.io.gfile.GFile(path + _MARKER, "rb") as file:
            marker = json.loads(file.read())
        if marker["step"] != step:
            return f"its marker is of step {marker['step']}"
        parts = [(part, marker[part]) for part in _PARTS]
        wanted = [(part, meta["size"], meta["crc32"]) for part, meta in parts]
    except (tf.errors.OpError, ValueError, KeyError, TypeError):
        return "its marker cannot be read"
    wrong = (_difference(path, *each) for each in wanted)
    return next(filter(None, wrong), "")


def sweep(
    model_dir: str, folder: str, kept: Collection[int] | None = None
) -> None:
    """Removes what was left unfinished, and checkpoints that are too old.

    Args:
        model_dir: Folder of the run.
        folder: `NEWEST` or `BEST`.
        kept: Steps whose files stay, all others go, half of one included.
            None: only temporary files go.
    """
    root = tf.io.gfile.join(model_dir, folder)
    names = _list(root)
    doomed = [name for name in names if _TEMPORARY.fullmatch(name)]
    if kept is not None:
        matches = filter(None, map(_NAME.fullmatch, names))
        old = [m for m in matches if int(m[1]) not in kept]
        old.sort(key=lambda match: match[2] != _MARKER)
        doomed += [match[0] for match in old]
    for name in doomed:
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(tf.io.gfile.join(root, name))


@contextlib.contextmanager
def explained(
    model_dir: str, folder: str, step: int, what: str
) -> Iterator[None]:
    """Turns trouble with files into one sentence, and tidies up after it.

    Args:
        model_dir: Folder of the run.
        folder: `NEWEST` or `BEST`.
        step: The step that is being written.
        what: What could not be done.

    Raises:
        RunError: in place of what the file system raises.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        steps: list[int] = []
        with contextlib.suppress(tf.errors.OpError):
            steps = list_steps(model_dir, folder)
            sweep(model_dir, folder, steps)
        stays = (
            f"step {steps[-1]} stays the {_RANKS[folder]}"
            if steps
            else "there is none before it"
        )
        raise RunError(
            f"step {step}: {what}: {files.reason(error)}; {stays}."
        ) from error


def _list(root: str) -> list[str]:
    return tf.io.gfile.listdir(root) if tf.io.gfile.isdir(root) else []


def _difference(path: str, part: str, size: int, crc32: int) -> str:
    """Returns in what one file is not what the marker says."""
    name = path + _PARTS[part]
    try:
        found = tf.io.gfile.stat(name).length
        if found != size:
            return f"its {part} has {found:,} bytes, not {size:,}"
        same = _checksum(name) == crc32
    except tf.errors.NotFoundError:
        return f"its {part} is missing"
    except tf.errors.OpError as error:
        return f"its {part} cannot be read: {error.message}"
    return "" if same else f"its {part} has another checksum"


def _checksum(path: str) -> int:
    value = 0
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            value = zlib.crc32(chunk, value)
    return value
