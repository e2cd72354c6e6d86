"""What the runs of the cells left behind, and how far they are apart."""

import dataclasses
import functools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests import processes
from tests.equivalence import cells

# Two-core machines run nearly as long as this when others are busy too.
DEADLINE_SECS = 900
# Group of the checkpoint → what it holds.
_KINDS = {"model": "weights", "average": "weights", "optimizer": "slots"}


@dataclasses.dataclass(frozen=True)
class Run:
    """What one run left behind."""

    train: list[dict[str, Any]]
    """Lines of metrics.jsonl, one a step."""
    evaluation: dict[str, Any]
    values: dict[str, np.ndarray]
    """Name → value of the last checkpoint."""
    copies: list[dict[str, list[str]]]
    """For each worker: name → hash of each replica's copy."""

    def column(self, name: str) -> list[float]:
        """Returns one number of each step."""
        # The log says null for what is not finite.
        return [np.nan if x[name] is None else x[name] for x in self.train]


def run_all(folder: Path) -> None:
    """Runs every cell in every place, at most two processes at a time."""
    places = [place for place in cells.PLACES if place != "workers-2"]
    with ThreadPoolExecutor(2) as pool:
        # The longest first.
        list(pool.map(lambda place: _run([place], folder), reversed(places)))
    _run(["workers-2"] * 2, folder)


def _run(places: list[str], folder: Path) -> None:
    """Runs one process for each place; two of them are workers."""
    alone = len(places) == 1
    running = [
        processes.start(
            "tests.equivalence.cells",
            place,
            str(folder),
            program="-m",
            env={} if alone else {"TF_CONFIG": config},
        )
        for place, config in zip(
            places, processes.tf_configs(len(places)), strict=True
        )
    ]
    for process in running:
        done = processes.finish(process, DEADLINE_SECS)
        if done.returncode:
            # Not here: the cells that did run are compared all the same.
            (folder / places[0] / "error.txt").write_text(done.stderr)


@functools.cache
def read(folder: Path, place: str, cell: str, optimizer: str) -> Run:
    """Reads one run; fails with its traceback if it did not end well."""
    model_dir = cells.run_dir(folder, place, cell, optimizer)
    for error in (model_dir / "error.txt", model_dir.parent / "error.txt"):
        assert not error.exists(), error.read_text()
    (evaluation,) = processes.read_metrics(model_dir, "eval")
    return Run(
        processes.read_metrics(model_dir, "train"),
        evaluation,
        _read_checkpoint(model_dir / "checkpoints" / f"step-{cells.STEPS}"),
        [
            json.loads(path.read_text())
            for path in sorted(model_dir.glob("copies-*.json"))
        ],
    )


def loss_difference(run: Run, reference: Run) -> float:
    """Returns the largest relative difference of the loss of an applied step.

    A step that was skipped must have a finite loss in both or in neither.
    """
    mine, other = np.array(run.column("loss")), reference.column("loss")
    np.testing.assert_array_equal(np.isfinite(mine), np.isfinite(other))
    relative = np.abs(mine / other - 1)
    if "skipped_steps" in reference.train[0]:
        # The loss of an image that overflows is its ink times any rounding.
        skipped = np.diff(reference.column("skipped_steps"), prepend=0)
        relative = relative[skipped == 0]
    return float(np.max(relative))


def value_differences(run: Run, reference: Run) -> dict[str, float]:
    """Returns for each value the largest difference over its magnitude."""
    assert run.values.keys() == reference.values.keys()
    return {
        name: _difference(value, reference.values[name])
        for name, value in run.values.items()
    }


def differences_by_kind(run: Run, reference: Run) -> dict[str, float]:
    """Returns the largest difference of the losses, weights and slots.

    Of all losses up to the last, since a single one may be equal by luck.
    """
    kinds = {"loss": loss_difference(run, reference)}
    for name, difference in value_differences(run, reference).items():
        kind = _KINDS.get(name.partition("/")[0])
        if kind:
            kinds[kind] = max(difference, kinds.get(kind, 0.0))
    return kinds


def _difference(value: np.ndarray, reference: np.ndarray) -> float:
    assert value.shape == reference.shape
    assert value.dtype == reference.dtype
    distance = np.max(np.abs(np.subtract(value, reference, dtype="float64")))
    if not distance:
        return 0.0
    return float(distance / np.max(np.abs(reference)))


def _read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(path))
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names}
