"""Data that cannot be read in the middle of a run."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import tensorflow as tf

from tests import processes

# Module of a user's: the lines of a file are what is learned.
DATASET = """
import tensorflow as tf
from data import DatasetInfo

def info(config):
    spec = tf.TensorSpec([1], tf.float32)
    return DatasetInfo(task="regression", features=spec, labels=spec,
                       num_examples={"train": 64, "eval": 64})

def source(config, split, shard):
    return tf.data.TFRecordDataset(f"{config.data_dir}/{split}")

def preprocess(config, split, element):
    number = tf.strings.to_number(element)[tf.newaxis] / 64.0
    return number, number
"""

# In the seventh of the eight batches of the epoch, with seed 0.
LATE = 41


def _write(folder: Path, split: str, bad: Mapping[int, str]) -> None:
    with tf.io.TFRecordWriter(str(folder / split)) as writer:
        for number in range(64):
            writer.write(bad.get(number, str(number)).encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "numbers_of_a_file.py").write_text(DATASET)
    _write(tmp_path, "train", {})
    _write(tmp_path, "eval", {})
    return tmp_path


def _flags(folder: Path, *more: str) -> list[str]:
    return [
        "--dataset=lib.numbers_of_a_file",
        f"--data_dir={folder}",
        f"--model_dir={folder / 'run'}",
        "--model=mlp",
        "--global_batch_size=8",
        # One epoch.
        "--train_steps=8",
        "--steps_per_loop=1",
        "--checkpoint_every_steps=1",
        *more,
    ]


def _run(folder: Path, *more: str):
    return processes.run(
        *_flags(folder, *more), env={"PYTHONPATH": str(folder)}
    )


def _one_line(done) -> str:
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    lines = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("train.py: ")
    ]
    assert len(lines) == 1, done.stderr
    return lines[0]


def _skipped(folder: Path) -> list[float]:
    lines = processes.read_metrics(folder / "run", "train")
    return [line["skipped_examples"] for line in lines]


@pytest.mark.parametrize("place", ["one_device", "mirrored"])
def test_a_bad_record_ends_training_in_one_line_and_mended_it_goes_on(
    folder: Path, place: str
) -> None:
    flags = [f"--strategy={place}"]
    if place == "mirrored":
        flags.append("--devices=cpu:0,cpu:1")
    _write(folder, "train", {LATE: "x"})

    line = _one_line(_run(folder, *flags))

    assert f"cannot read element {LATE} of the source of split train: " in line
    assert "convert string: x" in line
    assert "--skip_bad_examples" in line
    reached = len(processes.losses(folder / "run"))
    _write(folder, "train", {})
    done = _run(folder, *flags)
    assert done.returncode == 0, done.stderr
    assert f"Continuing at step {reached} of 8" in done.stdout
    assert len(processes.losses(folder / "run")) == 8


def test_a_bad_record_ends_an_evaluation_in_one_line(folder: Path) -> None:
    _write(folder, "eval", {LATE: "x"})

    line = _one_line(_run(folder))

    assert f"cannot read element {LATE} of the source of split eval: " in line


def test_as_many_as_allowed_are_skipped_and_counted(folder: Path) -> None:
    for split in ("train", "eval"):
        _write(folder, split, {LATE: "x"})

    done = _run(folder, "--skip_bad_examples=1")

    assert done.returncode == 0, done.stderr
    assert sorted(_skipped(folder)) == [0] * 7 + [1]
    (evaluation,) = processes.read_metrics(folder / "run", "eval")
    assert evaluation["examples"] == 63


@pytest.mark.slow
def test_one_more_than_allowed_ends_training_in_one_line(folder: Path) -> None:
    _write(folder, "train", {LATE: "x", 38: "y"})

    line = _one_line(_run(folder, "--skip_bad_examples=1"))

    assert "met 2 examples that cannot be read" in line
    assert "more than --skip_bad_examples=1" in line
    assert "of the source of split train: StringToNumber" in line


@pytest.mark.slow
def test_two_workers_count_together(folder: Path) -> None:
    _write(folder, "train", {5: "x", LATE: "y", 38: "z"})

    workers = processes.run_workers(
        2,
        *_flags(folder, "--strategy=multi_worker_mirrored"),
        "--skip_bad_examples=3",
        env={"PYTHONPATH": str(folder)},
    )

    for worker in workers:
        assert worker.returncode == 0, worker.stderr
    assert sum(_skipped(folder)) == 3
