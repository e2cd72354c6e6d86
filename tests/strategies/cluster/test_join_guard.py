"""A process that holds Python's lock inside C is ended from beside."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEADLINE_SECS = 60
# PyDLL keeps Python's lock during the call, as TensorFlow's constructor does.
PROGRAM = """
import ctypes, signal, sys
from strategies.cluster import join_guard
connection, secs, timeout = (int(word) for word in sys.argv[1:])
print("before")
with join_guard.guard({connection: "worker 1 is gone"}, timeout, "too late"):
    ctypes.PyDLL(None).sleep(secs)
print("after", signal.getsignal(signal.SIGHUP) is signal.SIG_DFL, flush=True)
signal.raise_signal(signal.SIGHUP)
"""


def start(
    connection: socket.socket, secs: int, timeout: int = DEADLINE_SECS
) -> subprocess.Popen[str]:
    words = [str(n) for n in (connection.fileno(), secs, timeout)]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=ROOT,
        pass_fds=(connection.fileno(),),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("unread", [b"", b"..."], ids=["silent", "unread"])
def test_ends_the_process_when_another_is_gone(unread: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, start(ours, 10 * DEADLINE_SECS) as process:
        theirs.sendall(unread)
        theirs.close()
        out, err = process.communicate(timeout=DEADLINE_SECS)
    assert process.returncode == 1
    assert out == "before\n"
    assert err == "worker 1 is gone\n"


def test_ends_the_process_when_it_takes_too_long() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, start(ours, 10 * DEADLINE_SECS, 1) as process:
        _, err = process.communicate(timeout=DEADLINE_SECS)
    assert process.returncode == 1
    assert err == "too late\n"


def test_leaves_no_trace_behind() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, start(ours, 0) as process:
        out, err = process.communicate(timeout=DEADLINE_SECS)
    # SIGHUP does what it did before: it ends the process by its number.
    assert process.returncode == -1
    assert out == "before\nafter True\n"
    assert not err
