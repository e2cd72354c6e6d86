"""The metrics of a run as columns."""

import array
import math
import os
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from errors import RequestError
from training import metrics_log
from training import stopping

# Lines of `--mode=follow` say `eval`; here they are a split of their own.
EVALUATOR = "evaluator"
SPLITS = ("train", "eval", EVALUATOR)
_NO_METRIC = ("time", "step", "split")
_NONE = array.array("d")


class Column(NamedTuple):
    """One metric of one split, over the steps."""

    steps: array.array  # of int64
    values: array.array  # of float64; NaN where it was not finite


class Judged(NamedTuple):
    """How good a metric is."""

    last: float
    best: float
    step: int
    """Of the best."""


class History:
    """The metrics of a run so far.

    It remembers what it has read: `update` fetches only what is new.
    """

    def __init__(self, model_dir: str) -> None:
        self.model_dir = model_dir
        self.columns: dict[tuple[str, str], Column] = {}  # (split, name)
        self.step = -1
        """The last one that has a line; -1: none has."""
        self._folders = {
            model_dir: -1,
            tf.io.gfile.join(model_dir, EVALUATOR): -1,
        }

    def update(self) -> None:
        """Reads the lines that have been written since."""
        for folder, after in self._folders.items():
            is_own = folder == self.model_dir
            for line in metrics_log.read(folder, after):
                split = line.get("split") if is_own else EVALUATOR
                if split in SPLITS:
                    self._add(split, line)
                self._folders[folder] = line["step"]
        self.step = max(self._folders.values())

    def _add(self, split: str, line: Mapping[str, Any]) -> None:
        for name, value in line.items():
            if name in _NO_METRIC or not isinstance(value, float | int | None):
                continue
            column = self.columns.setdefault(
                (split, name), Column(array.array("q"), array.array("d"))
            )
            column.steps.append(line["step"])
            column.values.append(_float(value))

    @property
    def name(self) -> str:
        """The name of the folder."""
        path = os.path.normpath(self.model_dir)
        return os.path.basename(path) or self.model_dir

    def names(self, splits: Iterable[str] = SPLITS) -> list[str]:
        """Returns the names of the metrics, in the order they came in."""
        found = [name for split, name in self.columns if split in splits]
        return list(dict.fromkeys(found))

    def best(self, name: str) -> Judged | None:
        """Returns how good a metric is; None if it has no finite value.

        Evaluations come before the training's own.
        """
        less = stopping.less_is_better(name)
        find = np.nanargmin if less else np.nanargmax
        for split in ("eval", EVALUATOR, "train"):
            steps, values = self.line(split, name)
            if np.isfinite(values).any():
                index = find(values)
                return Judged(values[-1], values[index], int(steps[index]))
        return None

    def line(self, split: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns steps and values, `[N]` each; empty if there is none."""
        column = self.columns.get((split, name), Column(_NONE, _NONE))
        return np.array(column.steps, np.int64), np.array(column.values)


def _float(value: float | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:  # an integer of JSON has any number of digits
        return math.nan


def read(model_dir: str) -> History:
    """Returns the metrics of a run.

    Raises:
        RequestError: if the folder has none, or if they cannot be read.
    """
    history = History(model_dir)
    try:
        history.update()
    except (OSError, tf.errors.OpError, UnicodeError) as error:
        raise RequestError(
            f"{model_dir}: its metrics cannot be read ({error}); give the "
            "folder of a run, its --model_dir."
        ) from error
    if not history.columns:
        raise RequestError(
            f"{model_dir}: has no metrics.jsonl with a line in it; give the "
            "folder of a run, its --model_dir."
        )
    return history
