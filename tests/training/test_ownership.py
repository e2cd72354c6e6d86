import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from errors import RequestError
from tests import processes
from training import ownership

# Prints a line, in one piece, once it has the folder, then waits for one.
PROGRAM = """
import os
import subprocess
import sys
from training import ownership
ownership.acquire(sys.argv[1])
if "fork" in sys.argv and os.fork() == 0:
    os.write(1, f"child {os.getpid()}\\n".encode())
    os.close(1)
    os.read(0, 1)
    os._exit(0)
if "exec" in sys.argv:
    child = subprocess.Popen(["cat"], stdout=subprocess.DEVNULL)
    os.write(1, f"child {child.pid}\\n".encode())
os.write(1, f"owner {os.getpid()}\\n".encode())
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    ownership._forget()


def _start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), *words],
        cwd=processes.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _owner(folder: Path) -> dict:
    return json.loads((folder / "lock").read_text())


def test_says_who_owns_the_folder_and_makes_it(tmp_path) -> None:
    folder = tmp_path / "runs" / "new"
    before = time.time()
    ownership.acquire(str(folder))
    owner = _owner(folder)
    assert owner["host"] == socket.gethostname()
    assert owner["pid"] == os.getpid()
    assert before - 0.001 <= owner["since"] <= time.time() + 0.001


def test_refuses_the_folder_of_a_live_process(tmp_path) -> None:
    with _start(tmp_path) as process:
        assert process.stdout.readline()
        since = time.strftime(
            "%Y-%m-%d", time.gmtime(_owner(tmp_path)["since"])
        )
        with pytest.raises(
            RequestError,
            match=f"--model_dir={tmp_path}: process {process.pid} on "
            f"{socket.gethostname()}, since {since} .* UTC, is training",
        ):
            ownership.acquire(str(tmp_path))
        process.communicate("\n")
    ownership.acquire(str(tmp_path))
    assert _owner(tmp_path)["pid"] == os.getpid()


@pytest.mark.parametrize("child", ["", "fork", "exec"])
def test_takes_over_from_a_killed_process(tmp_path, capsys, child) -> None:
    """Even if a child of its lives on."""
    with _start(tmp_path, child) as process:
        lines = [process.stdout.readline() for _ in ("owner", child) if _]
        process.send_signal(signal.SIGKILL)
        process.wait()
        for word, pid in map(str.split, lines):
            if word == "child":
                os.kill(int(pid), 0)  # it lives
        ownership.acquire(str(tmp_path))
    assert len(lines) == 1 + bool(child)
    assert _owner(tmp_path)["pid"] == os.getpid()
    assert capsys.readouterr().out == ""


def test_the_same_process_may_ask_again(tmp_path, monkeypatch) -> None:
    ownership.acquire(str(tmp_path / "a"))
    ownership.acquire(str(tmp_path / "b"))
    monkeypatch.chdir(tmp_path)
    ownership.acquire("a")


def test_a_vanished_folder_is_locked_anew(tmp_path) -> None:
    for _ in range(2):
        ownership.acquire(str(tmp_path / "run"))
        assert _owner(tmp_path / "run")["pid"] == os.getpid()
        shutil.rmtree(tmp_path / "run")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 3}'])
def test_refuses_without_a_name_if_there_is_none(tmp_path, content) -> None:
    with (tmp_path / "lock").open("w") as file:
        file.write(content)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RequestError, match="another process is training"):
            ownership.acquire(str(tmp_path))


def test_a_folder_that_cannot_be_written(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        RequestError, match=r"cannot be written \(Not a directory\)"
    ):
        ownership.acquire(str(tmp_path / "file" / "run"))


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_goes_on_where_nothing_can_be_locked(
    tmp_path, monkeypatch, capsys, code
) -> None:
    def flock(file: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    ownership.acquire(str(tmp_path))
    (line,) = capsys.readouterr().out.splitlines()
    assert f"{tmp_path} cannot be locked ({os.strerror(code)})" in line


def test_other_trouble_with_the_lock_is_raised(tmp_path, monkeypatch) -> None:
    def flock(file: int, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="Input/output error"):
        ownership.acquire(str(tmp_path))


def test_no_local_folder_no_lock(capsys) -> None:
    ownership.acquire("gs://bucket/run")
    assert "gs://bucket/run cannot be locked" in capsys.readouterr().out


def test_a_full_disk_still_locks(tmp_path, monkeypatch) -> None:
    def pwrite(file: int, content: bytes, offset: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", pwrite)
    ownership.acquire(str(tmp_path))
    file = os.open(tmp_path / "lock", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)
