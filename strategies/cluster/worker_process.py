"""The workers of a job on this machine: their processes, output and end."""

import contextlib
import ctypes
import math
import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from errors import INTERRUPTED

_PR_SET_PDEATHSIG = 1  # from Linux's prctl.h
_MOST_BYTES = 1 << 16
_POLL_SECS = 0.05
# For the others when one has failed: they cannot train on, but the chief may
# be in the middle of a write.
_END_SECS = 10.0
# A terminal signals the whole group, and a scheduler may follow at once.
_SECOND_SIGNAL_SECS = 2.0
_LIBC = ctypes.CDLL(None)


class WorkerProcess:
    """A process in a group of its own that ends when this process does.

    Its output, standard error included, goes to a log as it comes and, line
    by line, to `echo`. Nothing here waits: `relay` and `poll` are called
    again and again.

    Args:
        index: Number of the worker.
        command: Program and arguments.
        environ: Environment variables, besides those of this process.
        cores: Cores it may use; empty: those of this process.
        log: File to which its output is added.
        echo: Takes one line, without its end but with the worker's name.

    Raises:
        OSError: if the process cannot be started.
    """

    def __init__(
        self,
        index: int,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        cores: Collection[int],
        log: Path,
        echo: Callable[[bytes], None],
    ) -> None:
        self.index = index
        self._print = echo
        self._line = b""
        self._log = self._open(log)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self._keep(f"---- {stamp} {shlex.join(command)}\n".encode())
        self.output, theirs = os.pipe()
        os.set_blocking(self.output, False)
        try:
            self._process = subprocess.Popen(
                command,
                # What Python holds back would die with a killed worker.
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                process_group=0,
                preexec_fn=_make_tie(os.getpid(), cores),
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._close()
            raise OSError(str(error)) from error
        finally:
            os.close(theirs)

    def relay(self) -> bool:
        """Passes on some of what there is to read; False if nothing is."""
        try:
            data = os.read(self.output, _MOST_BYTES)
        except BlockingIOError:
            return False
        self._keep(data)
        # A progress bar ends its lines with a carriage return.
        *lines, self._line = (
            (self._line + data).replace(b"\r", b"\n").split(b"\n")
        )
        if len(self._line) > _MOST_BYTES:
            lines.append(self._line)
            self._line = b""
        for line in filter(None, lines):
            self._echo(line)
        return bool(data)

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None if it runs."""
        was_running = self._process.returncode is None
        code = self._process.poll()
        if code is not None and was_running:
            # Now, as the number of the group may soon be another's.
            self._kill_group()
        return code

    def terminate(self) -> None:
        """Asks the process to end; it sees to what it has started."""
        if self.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process and all that it has started in its group."""
        if self.poll() is None:
            self._kill_group()

    def close(self) -> None:
        """Leaves nothing of it behind: no process, no output unread."""
        self.kill()
        self._process.wait()
        while self.relay():
            pass
        if self._line:
            self._echo(self._line)
        self._close()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _echo(self, line: bytes) -> None:
        self._print(f"[worker {self.index}] ".encode() + line)

    def _close(self) -> None:
        os.close(self.output)
        self._log.close()

    def _open(self, path: Path) -> BinaryIO:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("ab", buffering=0)
        except OSError as error:
            self._echo(f"no log: {error}".encode())
            return open(os.devnull, "wb", buffering=0)

    def _keep(self, data: bytes) -> None:
        # A full disk costs the log, not the job.
        try:
            self._log.write(data)
        except OSError as error:
            self._echo(f"the log ends here: {error}".encode())
            self._log.close()
            self._log = open(os.devnull, "wb", buffering=0)


def watch(
    workers: Sequence[WorkerProcess],
    signalled: Sequence[float],
    grace_secs: float,
) -> dict[int, int]:
    """Relays output until all have ended, and ends them when it must.

    If one fails, the others are asked to end, and killed if they do not. One
    that was interrupted has agreed with the others to stop, unless it was
    before they had met: they are asked, too, and get time to follow.

    Args:
        workers: All of a job.
        signalled: Times (`time.monotonic`) of the signals to this process;
            may grow in the meantime.
        grace_secs: Time to stop after a signal.

    Returns:
        Worker → exit code, in the order in which they ended.
    """
    codes: dict[int, int] = {}
    running = list(workers)
    is_told, kill_at = False, math.inf
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.output, selectors.EVENT_READ, worker)
        while running:
            for key, _ in selector.select(_POLL_SECS):
                if not key.data.relay():
                    selector.unregister(key.fileobj)
            ended = {worker.index: worker.poll() for worker in running}
            codes |= {i: code for i, code in ended.items() if code is not None}
            running = [w for w in running if w.index not in codes]
            kill_at = min(kill_at, _bound(codes, signalled, grace_secs))
            is_over = time.monotonic() >= kill_at
            for worker in running:
                if is_over:
                    worker.kill()
                elif not is_told and _must_stop(codes, signalled):
                    worker.terminate()
            is_told = _must_stop(codes, signalled)
    if next(filter(None, codes.values()), 0) == INTERRUPTED:
        # Told to follow before it could listen, a worker ends by the signal.
        codes |= {i: INTERRUPTED for i in codes if codes[i] == -signal.SIGTERM}
    return codes


def _must_stop(codes: Mapping[int, int], signalled: Sequence[float]) -> bool:
    return bool(signalled) or any(codes.values())


def _bound(
    codes: Mapping[int, int], signalled: Sequence[float], grace_secs: float
) -> float:
    """Returns when whoever still runs is killed, if nothing changes."""
    now = time.monotonic()
    bounds = [math.inf]
    if not set(codes.values()) <= {0, INTERRUPTED}:
        bounds.append(now + _END_SECS)
    if INTERRUPTED in codes.values():
        bounds.append(now + grace_secs)
    if signalled:
        bounds.append(signalled[0] + grace_secs)
        if signalled[-1] - signalled[0] >= _SECOND_SIGNAL_SECS:
            bounds.append(now)
    return min(bounds)


def _make_tie(parent: int, cores: Collection[int]) -> Callable[[], None]:
    """Returns what the new process does before it becomes the worker."""

    def tie() -> None:
        if sys.platform == "linux":
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            # Had the parent died before the call, no signal would come.
            if os.getppid() != parent:
                os._exit(1)
        if cores:
            os.sched_setaffinity(0, cores)

    return tie
