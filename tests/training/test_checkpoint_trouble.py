"""Full, read-only and vanished disks: what is said, and what is left."""

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from errors import RunError
from training import checkpoint
from training import checkpoint_writer
from training import files


def _variables(
    strategy: tf.distribute.Strategy, size: int = 3
) -> dict[str, tf.Variable]:
    with strategy.scope():
        return {"model/kernel": tf.Variable(tf.ones([size]))}


def _temporary(folder: Path) -> list[Path]:
    return [*folder.rglob("*tmp*"), *folder.rglob("*temp*")]


@contextlib.contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_trouble_stops_the_run_and_leaves_the_last_good_one(
    tmp_path, strategy_of
) -> None:
    small = _variables(strategy_of(1))
    large = _variables(strategy_of(1), size=2**20)
    writer = checkpoint_writer.Writer(strategy_of(1), str(tmp_path), 1)
    with _file_size_limit(2**20):
        writer.save(large, 3)
        with pytest.raises(
            RunError,
            match=r"step 3: the checkpoint could not be written: File too "
            r"large; there is none before it\.$",
        ):
            writer.wait()
        writer.save(small, 4)
        writer.save(large, 5)
        with pytest.raises(
            RunError, match=r"File too large; step 4 stays the newest\.$"
        ):
            writer.save(small, 6)
    assert not _temporary(tmp_path)
    assert checkpoint.list_steps(str(tmp_path)) == [4]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 3


def test_trouble_can_be_gone_past(tmp_path, strategy_of, capsys) -> None:
    variables = _variables(strategy_of(1), size=2**20)
    writer = checkpoint_writer.Writer(
        strategy_of(1), str(tmp_path), 1, "continue"
    )
    best = {"step": 2, "metric": "loss", "value": 1.0}
    with _file_size_limit(2**20):
        writer.save(variables, 1)
        writer.save_best(variables, best)
        writer.wait()
    assert capsys.readouterr().out.splitlines() == [
        f"step {step}: the checkpoint could not be written: File too large; "
        "there is none before it."
        for step in (1, 2)
    ]
    writer.save(variables, 3)
    writer.wait()
    assert checkpoint.list_steps(str(tmp_path)) == [3]


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A disk of one megabyte; needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("only root can mount a disk")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk(disk, strategy_of) -> None:
    large = _variables(strategy_of(1), size=2**20)
    writer = checkpoint_writer.Writer(strategy_of(1), str(disk), 1)
    writer.save(_variables(strategy_of(1)), 1)
    writer.save(large, 2)
    with pytest.raises(
        RunError, match=r"No space left on device; step 1 stays the newest\.$"
    ):
        writer.wait()
    (disk / "ballast").write_bytes(bytes(os.statvfs(disk).f_bavail * 4096))
    writer.save(_variables(strategy_of(1)), 3)
    with pytest.raises(RunError, match="No space left on device"):
        writer.wait()
    assert not _temporary(disk)
    assert checkpoint.list_steps(str(disk)) == [1]


def test_a_read_only_disk(disk, strategy_of) -> None:
    variables = _variables(strategy_of(1))
    writer = checkpoint_writer.Writer(strategy_of(1), str(disk), 1)
    writer.save(variables, 1)
    writer.wait()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    writer.save(variables, 2)
    with pytest.raises(
        RunError, match=r"Read-only file system; step 1 stays the newest\.$"
    ):
        writer.wait()


def test_a_folder_that_cannot_be_made(tmp_path, strategy_of) -> None:
    (tmp_path / "checkpoints").touch()
    writer = checkpoint_writer.Writer(strategy_of(1), str(tmp_path), 1)
    writer.save(_variables(strategy_of(1)), 2)
    with pytest.raises(RunError, match=r"step 2: .* there is none before it"):
        writer.wait()


def test_a_vanished_folder_is_made_again(tmp_path, strategy_of) -> None:
    variables = _variables(strategy_of(1))
    folder = tmp_path / "run"
    writer = checkpoint_writer.Writer(strategy_of(1), str(folder), 2)
    writer.save(variables, 1)
    writer.wait()
    shutil.rmtree(folder)
    writer.save(variables, 2)
    writer.wait()
    assert checkpoint.list_steps(str(folder)) == [2]


def test_old_ones_that_cannot_be_removed(
    tmp_path, strategy_of, monkeypatch
) -> None:
    variables = _variables(strategy_of(1))
    writer = checkpoint_writer.Writer(strategy_of(1), str(tmp_path), 1)
    writer.save(variables, 1)
    writer.wait()

    def remove(path: str) -> None:
        raise tf.errors.PermissionDeniedError(None, None, f"{path}; Denied")

    monkeypatch.setattr(tf.io.gfile, "remove", remove)
    writer.save(variables, 2)
    with pytest.raises(
        RunError,
        match=r"step 2: older checkpoints could not be removed: Denied; "
        r"step 2 stays the newest",
    ):
        writer.wait()


def test_a_failing_sync_is_trouble_too(
    tmp_path, strategy_of, monkeypatch
) -> None:
    def fsync(file: int) -> None:
        raise OSError(5, "Input/output error")

    writer = checkpoint_writer.Writer(strategy_of(1), str(tmp_path), 1)
    monkeypatch.setattr(files.os, "fsync", fsync)
    writer.save(_variables(strategy_of(1)), 1)
    with pytest.raises(RunError, match="Input/output error"):
        writer.wait()
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_fault_of_the_program_keeps_its_type(
    tmp_path, strategy_of, monkeypatch
) -> None:
    writer = checkpoint_writer.Writer(strategy_of(1), str(tmp_path), 1)
    monkeypatch.setattr(files, "publish", None)
    writer.save(_variables(strategy_of(1)), 1)
    with pytest.raises(TypeError):
        writer.wait()
