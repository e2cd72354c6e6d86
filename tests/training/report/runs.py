"""Small runs on the disk, to show on a page."""

import json
from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RECORD = {
    "command": ["train.py", "--seed=3"],
    "config": {
        "run": {"mode": "train", "seed": 3, "model_dir": "runs/a"},
        "data": {"dataset": "digits", "data_dir": ""},
        "model": {"model": "mlp", "model_options": ["units=8", "depth=2"]},
        "train": {"train_steps": 40, "export": "", "run_eagerly": False},
    },
    "flags": ["--seed=3", "--model_dir=runs/a"],
    "versions": {"python": "3.11.7", "keras": "3.15.1"},
    "git": {"commit": "abc123", "dirty": True},
    "strategy": {
        "name": "mirrored",
        "replicas": 2,
        "workers": 1,
        "devices": ["GPU:0", "GPU:1"],
    },
    "batch": {"global": 64, "per_replica": 32},
    "parameters": 12345,
    "starts": [{"time": 1.7e9, "step": 0}, {"time": 1.7e9 + 60, "step": 20}],
}


def train(step: int, **values: float | None) -> dict[str, Any]:
    """Returns a line of a loop of steps."""
    return {"time": 1.7e9 + step, "step": step, "split": "train", **values}


def evaluation(step: int, **values: float | None) -> dict[str, Any]:
    """Returns a line of an evaluation."""
    return {**train(step, **values), "split": "eval"}


LINES = [
    train(10, loss=2.0, accuracy=0.25, learning_rate=0.1),
    train(20, loss=1.0, accuracy=0.5, learning_rate=0.1),
    evaluation(20, loss=1.25, accuracy=0.5, examples=359.0),
    train(30, loss=None, accuracy=0.75, learning_rate=0.1),
    train(40, loss=0.5, accuracy=0.875, learning_rate=0.05),
    evaluation(40, loss=1.5, accuracy=0.75, examples=359.0),
]


def write(
    folder: Path,
    lines: Iterable[Mapping[str, Any]] = LINES,
    record: Mapping[str, Any] | None = RECORD,
) -> str:
    """Writes metrics.jsonl and run.json; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    if record is not None:
        (folder / "run.json").write_text(json.dumps(record))
    return str(folder)
