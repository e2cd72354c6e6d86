"""metrics.jsonl: one object a line, for each inner loop and evaluation.

Times are seconds since 1970, UTC. Everything here is the chief's work.
"""

import json
import math
import time
from collections.abc import Mapping

import tensorflow as tf

from training import files


def append(
    model_dir: str, step: int, split: str, values: Mapping[str, float]
) -> None:
    """Appends one line to metrics.jsonl; what is not finite becomes null."""
    line = {"time": round(time.time(), 3), "step": step, "split": split}
    line |= {
        name: value if math.isfinite(value) else None
        for name, value in values.items()
    }
    path = _path(model_dir)
    with tf.io.gfile.GFile(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def steps(model_dir: str) -> set[int]:
    """Returns the steps that have a line."""
    return {step for line in _read(model_dir) if (step := _step_of(line)) >= 0}


def cut(model_dir: str, step: int) -> None:
    """Removes what comes after `step`.

    Those steps will be run again. A last line that a kill has torn goes too.
    """
    lines = _read(model_dir)
    kept = [line for line in lines if 0 <= _step_of(line) <= step]
    if kept != lines:
        files.write(_path(model_dir), "".join(f"{line}\n" for line in kept))


def _read(model_dir: str) -> list[str]:
    path = _path(model_dir)
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path) as file:
        return file.read().splitlines()


def _step_of(line: str) -> int:
    """Returns the step of a line, or -1 if the line is torn."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return -1


def _path(model_dir: str) -> str:
    return tf.io.gfile.join(model_dir, "metrics.jsonl")
