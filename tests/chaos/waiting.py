"""Waits that have a deadline."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def wait(is_so: Callable[[], bool], secs: float, every: float = 0.002) -> bool:
    """Waits until it is so; False if it is not after `secs`."""
    deadline = time.monotonic() + secs
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    folder = Path(f"/proc/{pid}")
    try:
        text = (folder / "stat").read_text()
        state = text.rpartition(")")[2].split()[0]
        # The first thread of a process may be gone before the others are.
        return state not in "ZX" or len(os.listdir(folder / "task")) > 1
    except OSError:
        return False
