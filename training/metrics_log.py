"""metrics.jsonl: one object a line, for each inner loop and evaluation.

An object store cannot append, and to write all lines again for each would take
time that grows with the square of the run. There each line is a file of its
own, `metrics/<step>-<split>.jsonl`, all of them in a row being metrics.jsonl.

Times are seconds since 1970, UTC. Everything here is the chief's work.
"""

import json
import math
import re
import time
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from training import files

_FOLDER = "metrics"
_NAME = re.compile(r"(\d+)-\w+\.jsonl")


def append(
    model_dir: str, step: int, split: str, values: Mapping[str, float]
) -> None:
    """Appends one line; what is not finite becomes null."""
    line = {"time": round(time.time(), 3), "step": step, "split": split}
    line |= {
        name: value if math.isfinite(value) else None
        for name, value in values.items()
    }
    text = json.dumps(line) + "\n"
    if files.is_object_store(model_dir):
        name = f"{step:012}-{split}.jsonl"
        files.write(tf.io.gfile.join(model_dir, _FOLDER, name), text)
        return
    with tf.io.gfile.GFile(_path(model_dir), "a") as file:
        file.write(text)


def steps(model_dir: str) -> set[int]:
    """Returns the steps that have a line."""
    if files.is_object_store(model_dir):
        return set(_steps_of_files(model_dir).values())
    return {step for line in _read(model_dir) if (step := _step_of(line)) >= 0}


def read(model_dir: str, after: int = -1) -> Iterator[dict[str, Any]]:
    """Yields what the lines of the steps after `after` hold, in their order.

    A torn line is passed over. On an object store only what is yielded is
    fetched.
    """
    if files.is_object_store(model_dir):
        found = _steps_of_files(model_dir)
        paths = sorted(path for path in found if found[path] > after)
    else:
        path = _path(model_dir)
        paths = [path] if tf.io.gfile.exists(path) else []
    for path in paths:
        with tf.io.gfile.GFile(path) as file:
            values = map(_parse, file)
            yield from (v for v in values if v and v["step"] > after)


def cut(model_dir: str, step: int) -> None:
    """Removes what comes after `step`.

    Those steps will be run again. A last line that a kill has torn goes too.
    """
    if files.is_object_store(model_dir):
        for path, written in _steps_of_files(model_dir).items():
            if written > step:
                tf.io.gfile.remove(path)
        return
    lines = _read(model_dir)
    kept = [line for line in lines if 0 <= _step_of(line) <= step]
    if kept != lines:
        files.write(_path(model_dir), "".join(f"{line}\n" for line in kept))


def _steps_of_files(model_dir: str) -> dict[str, int]:
    """Returns path → step of the lines that are files."""
    folder = tf.io.gfile.join(model_dir, _FOLDER)
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    found = map(_NAME.fullmatch, names)
    return {tf.io.gfile.join(folder, m[0]): int(m[1]) for m in found if m}


def _read(model_dir: str) -> list[str]:
    path = _path(model_dir)
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path) as file:
        return file.read().splitlines()


def _step_of(line: str) -> int:
    """Returns the step of a line, or -1 if the line is torn."""
    return _parse(line).get("step", -1)


def _parse(line: str) -> dict[str, Any]:
    """Returns what a line holds; nothing if the line is torn."""
    try:
        values = json.loads(line)
        return values | {"step": int(values["step"])}
    except (ValueError, KeyError, TypeError):
        return {}


def _path(model_dir: str) -> str:
    return tf.io.gfile.join(model_dir, "metrics.jsonl")
