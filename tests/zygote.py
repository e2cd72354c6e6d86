"""Forks what tests start, from a process that has imported TensorFlow.

Most of a short run's time is the import of TensorFlow and Keras. What is forked
here has done that already; from then on it is a process like any other: with
arguments, environment, output, exit code and end of its own, and a child of the
process that runs the tests.
"""

import atexit
import ctypes
import functools
import gc
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, from Linux's prctl.h
# Read while TensorFlow, Keras or Python itself starts: too late here.
_EARLY = ("TF_", "XLA_", "KERAS_", "PYTHON", "OMP_", "CUDA_", "TPU_")
_one_at_a_time = threading.Lock()
_MODULES = ("assemble", "rehearse", "training.loop", "training.export")


def can_fork(env: Mapping[str, str]) -> bool:
    """Returns whether a process with these changes may be forked."""
    changed = env.keys() - {"TF_CONFIG", "PYTHONPATH"}
    return sys.platform == "linux" and not any(
        name.startswith(_EARLY) for name in changed
    )


class Forked(subprocess.Popen[str]):
    """A `Popen` whose process is forked by the zygote, not executed.

    Its first argument is what `python` would be given.
    """

    # Not public, and in every Python since 3.2: all else of `Popen` is of use.
    def _execute_child(self, *args: Any) -> None:
        base = subprocess.Popen._execute_child  # type: ignore[attr-defined]
        given = inspect.signature(base).bind(self, *args).arguments
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite")
        request = {"argv": given["args"], "env": dict(given["env"])}
        # What is forked twice becomes the child of the nearest ancestor that
        # asks for it: only now, or every orphan of a test would.
        prctl = ctypes.CDLL(None).prctl
        with _one_at_a_time:
            zygote = _zygote()
            prctl(_SUBREAPER, 1)
            socket.send_fds(
                zygote,
                [json.dumps(request | {"cwd": str(given["cwd"])}).encode()],
                [given["c2pwrite"], given["errwrite"]],
            )
            self.pid = int(zygote.recv(64))
            zygote.recv(64)
            prctl(_SUBREAPER, 0)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            *(given[end] for end in ends), given["errread"], given["errwrite"]
        )


@functools.cache
def _zygote() -> socket.socket:
    """Starts it, once in a process that runs tests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.zygote", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def main(argv: Sequence[str]) -> None:
    """Serves until the other end is closed; returns in every forked process."""
    for name in _MODULES:
        __import__(name)
    gc.collect()
    gc.freeze()
    # Of the terminal's group; who runs the tests ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(argv[1]))
    while True:
        text, fds, _, _ = socket.recv_fds(connection, 1 << 20, 2)
        if not text:
            os._exit(0)
        middle = os.fork()
        if not middle:
            pid = os.fork()
            if pid:
                connection.send(str(pid).encode())
                os._exit(0)
            break
        os.waitpid(middle, 0)
        connection.send(b"its parent has ended")
        for fd in fds:
            os.close(fd)
    connection.close()
    request = json.loads(text)
    for fd, standard in zip(fds, (1, 2), strict=True):
        os.dup2(fd, standard)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    # Python asks for $TMPDIR once.
    tempfile.tempdir = None
    sys.path[:0] = filter(None, os.getenv("PYTHONPATH", "").split(":"))
    _become(request["argv"])


def _become(argv: list[str]) -> None:
    """Does what `python ARGV` does."""
    program, *words = argv
    if program == "-c":
        code, *words = words
        sys.argv = ["-c", *words]
        exec(code, {"__name__": "__main__"})
    elif program == "-m":
        module, *words = words
        sys.argv = [module, *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *words]
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv)
