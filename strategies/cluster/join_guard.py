"""Ends this process if another dies while TensorFlow makes them one.

TensorFlow waits for all workers inside the strategy's constructor, and holds
Python's lock there: if one of them dies at that moment (seen in one of three
kills within 0.4 s of the meeting), no thread of this process can act. So a
process beside it looks at the same connections for that short time.

The other process runs this file as a script, without the rest of the project.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from collections.abc import Mapping

# Longer than the watch in this process needs, which is asked first.
_PATIENCE_SECS = 2.0
# Only Linux tells of an end that came before what is still unread.
_CLOSED = getattr(select, "POLLRDHUP", select.POLLHUP)


@contextlib.contextmanager
def guard(
    lines: Mapping[int, str], timeout_secs: float, timeout_line: str
) -> Iterator[None]:
    """Inside, the process ends with 1 when a connection is closed.

    Args:
        lines: File descriptor of a connection → what to print at its end.
        timeout_secs: How long the block may last.
        timeout_line: What to print if it lasts longer.
    """
    request = json.dumps([list(lines.items()), timeout_secs, timeout_line])
    with (
        _ending_at_sighup(),
        subprocess.Popen(
            # Without the project, whose folder need not be where this runs.
            [sys.executable, "-I", "-S", __file__, request],
            stdin=subprocess.PIPE,
            pass_fds=tuple(lines),
        ) as process,
    ):
        try:
            yield
        finally:
            # Ends with the pipe, as it would if this process were killed.
            process.communicate()


@contextlib.contextmanager
def _ending_at_sighup() -> Iterator[None]:
    """Inside, SIGHUP ends the process with 1, whatever it is doing."""
    sys.stdout.flush()
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    # A handler in C needs no lock of Python's. It is called with the number
    # of the signal, and that of SIGHUP is 1.
    end = ctypes.cast(libc._exit, ctypes.c_void_p)
    before = libc.signal(signal.SIGHUP, end)
    try:
        yield
    finally:
        libc.signal(signal.SIGHUP, before)


def _look_on(
    lines: list[tuple[int, str]], timeout_secs: float, timeout_line: str
) -> str:
    """Returns what to print before the parent is ended; empty: it is done."""
    done = select.poll()
    done.register(sys.stdin, select.POLLHUP)
    poll = select.poll()
    poll.register(sys.stdin, select.POLLHUP)
    for connection, _ in lines:
        poll.register(connection, _CLOSED)
    ended = [number for number, _ in poll.poll(timeout_secs * 1000)]
    if done.poll(_PATIENCE_SECS * 1000):
        return ""
    return next((line for i, line in lines if i in ended), timeout_line)


def _main() -> None:
    # What ends the whole group is for the parent to hear.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    line = _look_on(*json.loads(sys.argv[1]))
    if line:
        print(line, file=sys.stderr, flush=True)
        os.kill(parent, signal.SIGHUP)


if __name__ == "__main__":
    _main()
