"""A request to stop that a run hears at any moment: save, and exit 42.

SIGTERM (Kubernetes, Slurm, spot machines), SIGINT (Ctrl-C) and SIGUSR1 (what
Slurm's `--signal` is mostly told to send) are one and the same here. Python
runs a signal handler only between two of its own instructions, which a long
compiled loop does not come to; but its C part at once writes the number of the
signal to a pipe. A thread reads it and sets a TensorFlow variable that the
loop looks at after every step. No TensorFlow before there is a loop.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NoReturn

from errors import INTERRUPTED
from errors import say

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
# A terminal signals the whole group and a launcher forwards its own: what
# comes sooner is the same request again.
_SAME_SECS = 2.0


class Listener(threading.Thread):
    """Waits for a signal. One in a process; its main thread makes it.

    Args:
        leave: Called with the exit code before the process is ended at once.
    """

    def __init__(self, leave: Callable[[int], None]) -> None:
        super().__init__(name="preemption", daemon=True)
        self._leave = leave
        self._lock = threading.Lock()
        self._ask: Callable[[], Any] | None = None
        self._doing = ""
        self._grace_secs = 0.0
        self._asked_at: float | None = None
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self.start()

    def run(self) -> None:
        """Reads the pipe until the process ends."""
        while True:
            number = os.read(self._read, 1)[0]
            if number in _SIGNALS:
                self._hear(signal.Signals(number).name)

    def _hear(self, name: str) -> None:
        with self._lock:
            now = time.monotonic()
            if self._asked_at is not None:
                if now - self._asked_at >= _SAME_SECS:
                    self._end(f"{name} again: stopped at once")
                return
            ask = self._ask
            if not ask:
                self._end(f"{name}: stopped, there was nothing to save")
            self._asked_at = now
            timer = threading.Timer(self._grace_secs, self._give_up)
            timer.daemon = True
            timer.start()
            ask()
        say(f"train.py: {name}: {self._doing}")

    def _give_up(self) -> None:
        with self._lock:
            if self._ask:
                self._end(
                    f"not saved within {self._grace_secs:g} s "
                    "(--preemption_grace_secs)"
                )

    def _end(self, what: str) -> NoReturn:
        say(
            f"train.py: {what}; the same flags with the same --model_dir go on "
            "from its newest checkpoint."
        )
        self._leave(INTERRUPTED)
        sys.stdout.flush()
        # Not `sys.exit`: the main thread may be in the midst of a step.
        os._exit(INTERRUPTED)

    @contextlib.contextmanager
    def calling(
        self, ask: Callable[[], Any], grace_secs: float, doing: str
    ) -> Iterator[None]:
        """Inside, the first signal calls `ask` instead of ending the process.

        Args:
            ask: Makes the loop stop; called in another thread.
            grace_secs: From then on the process has so long to end by itself.
            doing: What is said then.
        """
        with self._lock:
            self._ask, self._grace_secs, self._doing = ask, grace_secs, doing
        try:
            yield
        finally:
            with self._lock:
                self._ask = None


_listener: Listener | None = None


def listen(leave: Callable[[int], None]) -> None:
    """Starts to listen; call it in the main thread, first of all.

    Args:
        leave: Called with the exit code before the process is ended at once.
    """
    global _listener
    _listener = _listener or Listener(leave)
    listen_again()


def listen_again() -> None:
    """Takes the signals back, if anybody listens.

    The server that TensorFlow starts for several workers has a handler of its
    own for SIGTERM, which hides it from Python.
    """
    for number in _SIGNALS if _listener else ():
        # Does nothing, but must be there for the pipe to be written.
        signal.signal(number, lambda *_: None)


def calling(
    ask: Callable[[], Any],
    grace_secs: float,
    doing: str = "saving after the step that runs",
) -> contextlib.AbstractContextManager[None]:
    """As `Listener.calling`; nothing happens if nobody listens."""
    if _listener:
        return _listener.calling(ask, grace_secs, doing)
    return contextlib.nullcontext()
