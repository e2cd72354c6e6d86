"""Notices when another worker is gone, in every phase of a run.

A collective operation waits for a worker that died, was stopped or lost its
network, for ten seconds or for ever, and does not say for whom. Here a thread
says to all others every two seconds that this process lives, on connections
that nothing else uses, and ends the process, in one line that names the
worker, when one of them is closed without a word or silent for too long. What
the process was doing does not matter: it could wait inside TensorFlow for ever.
"""

import os
import select
import sys
import threading
import time
from typing import NoReturn

from errors import INTERRUPTED
from errors import say
from strategies.cluster.rendezvous import Links
from strategies.cluster.tf_config import Cluster

CLOSED = "has closed its connection"
_BEAT_SECS = 2.0
# Below 30 s with all that comes after; a collective gives up after ten.
_SILENCE_SECS = 15.0
# How long this process goes on after another one has said that it ends: it
# will hear the same from its own main thread, if all have come to it together.
_LEAVE_SECS = 10.0
_BEAT, _BYE = b".", b"x"


class Watch(threading.Thread):
    """The thread. One in a process."""

    def __init__(self, cluster: Cluster, links: Links) -> None:
        super().__init__(name="watch", daemon=True)
        self._cluster = cluster
        self._links = links
        self._heard = dict.fromkeys(links.incoming, time.monotonic())
        # Position → exit code and time of those who have said goodbye.
        self._left: dict[int, tuple[int, float]] = {}
        self._is_over = threading.Event()

    def leave(self, code: int) -> None:
        """Says to the others that this process ends on purpose."""
        self._is_over.set()
        self._say(_BYE + bytes([code]))

    def run(self) -> None:
        """Beats and listens until the process ends."""
        beaten = 0.0
        while not self._is_over.is_set():
            now = time.monotonic()
            if now - beaten > 2 * _BEAT_SECS:
                # This process itself has slept: it cannot blame the others.
                self._heard = dict.fromkeys(self._heard, now)
            if now - beaten >= _BEAT_SECS:
                self._say(_BEAT)
                beaten = now
            self._listen(now)
            self._judge(now)

    def _say(self, words: bytes) -> None:
        for connection in self._links.outgoing.values():
            try:
                connection.settimeout(0)
                connection.sendall(words)
            except OSError:
                continue  # heard of soon enough, on the other connection

    def _listen(self, now: float) -> None:
        positions = {
            connection: i
            for i, connection in self._links.incoming.items()
            if i not in self._left
        }
        for connection in select.select(positions, [], [], _BEAT_SECS / 4)[0]:
            i = positions[connection]
            try:
                words = connection.recv(4096)
            except OSError:
                words = b""
            if _BYE in words:
                code = words[words.index(_BYE) + 1 :]
                self._left[i] = (code[0] if code else 1, now)
            elif words:
                self._heard[i] = now
            elif not self._is_over.is_set():
                self._end(i, CLOSED)

    def _judge(self, now: float) -> None:
        for i, heard in self._heard.items():
            if i not in self._left and now - heard > _SILENCE_SECS:
                self._end(i, f"has been silent for {now - heard:.0f} s")
        for i, (code, left) in self._left.items():
            if code and now - left > _LEAVE_SECS:
                self._end(i, f"has ended with exit code {code}", code)

    def _end(self, position: int, what: str, code: int = 1) -> NoReturn:
        say(last_words(f"{self._cluster.tasks[position]} {what}"))
        sys.stdout.flush()
        # Not `sys.exit`: the main thread may be waiting inside TensorFlow.
        os._exit(code if code == INTERRUPTED else 1)


def last_words(what: str) -> str:
    """Returns the line with which a worker ends because another is gone."""
    return (
        f"train.py: {what}, and this worker ends with it; start all again with "
        "the same flags to go on from the newest checkpoint."
    )


_watch: Watch | None = None


def start(cluster: Cluster, links: Links) -> None:
    """Starts to watch the others.

    Every program that does must end with `leave`: the others take an end
    without it for a death, if they need a moment longer themselves.
    """
    global _watch
    _watch = Watch(cluster, links)
    _watch.start()


def leave(code: int) -> None:
    """Says to the others, if any are watched, that this process ends now.

    Args:
        code: The exit code it ends with.
    """
    if _watch:
        _watch.leave(code)


def wait_for_verdict() -> None:
    """Waits, if others are watched, until one of them is found to be gone.

    An error of a collective comes before the watch can be sure who is gone.
    Returns if nobody is: the error has another cause.
    """
    if _watch:
        _watch.join(_SILENCE_SECS + 2 * _BEAT_SECS)
