"""A small disk that can be full. Needs root."""

import contextlib
import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_SIZE = "size=16m"
_BALLAST = "ballast"
_CHUNK_BYTES = 1 << 16


def missing() -> str:
    """Returns what is missing to make a disk; empty if nothing is."""
    if os.geteuid():
        return "needs root"
    try:
        with tempfile.TemporaryDirectory() as folder, mounted(Path(folder)):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no file system in memory: {error}"


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[tuple[()]]:
    """Mounts one at `folder`, which must be there, and takes it away."""
    words = ["-t", "tmpfs", "-o", _SIZE, "chaos", str(folder)]
    _run("mount", *words)
    try:
        yield ()
    finally:
        # Lazily: whoever still writes there is about to be ended.
        _run("umount", "--lazy", str(folder))


def fill(folder: Path) -> None:
    """Leaves not one byte free on the disk of `folder`."""
    with (folder / _BALLAST).open("wb", buffering=0) as file:
        size = _CHUNK_BYTES
        while size:
            try:
                file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2


def clear(folder: Path) -> None:
    """Gives back what `fill` has taken."""
    (folder / _BALLAST).unlink()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=30)
