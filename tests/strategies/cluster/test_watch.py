"""Each worker is a socket pair here; that a process ends is recorded."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from strategies.cluster import watch
from strategies.cluster.rendezvous import Links
from strategies.cluster.tf_config import Cluster

DEADLINE_SECS = 20
CLUSTER = Cluster(("a:1", "b:2", "c:3"), "worker", 0)


class Others:
    """The far ends of the connections of worker 0 with workers 1 and 2."""

    def __init__(self) -> None:
        out = {i: socket.socketpair() for i in (1, 2)}
        back = {i: socket.socketpair() for i in (1, 2)}
        self.links = Links(
            {i: pair[0] for i, pair in out.items()},
            {i: pair[0] for i, pair in back.items()},
        )
        self.hears = {i: pair[1] for i, pair in out.items()}
        self.says = {i: pair[1] for i, pair in back.items()}

    def close(self) -> None:
        self.links.close()
        for end in (*self.hears.values(), *self.says.values()):
            end.close()


@pytest.fixture
def others() -> Iterator[Others]:
    made = Others()
    yield made
    made.close()


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        raise SystemExit  # ends the thread, where `os._exit` ends the process

    monkeypatch.setattr(watch.os, "_exit", leave)
    monkeypatch.setattr(watch, "_BEAT_SECS", 0.1)
    return codes


def beat(others: Others, positions: tuple[int, ...]) -> threading.Event:
    """Lets those workers say that they live until the event is set."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(0.05):
            for i in positions:
                others.says[i].sendall(b".")

    threading.Thread(target=run, daemon=True).start()
    return is_over


class QuietWatch(watch.Watch):
    def run(self) -> None:
        with contextlib.suppress(SystemExit):
            super().run()


def run_watch(others: Others) -> watch.Watch:
    made = QuietWatch(CLUSTER, others.links)
    made.start()
    return made


def test_says_that_it_lives(others: Others, ended: list[int]) -> None:
    made = run_watch(others)
    for end in others.hears.values():
        end.settimeout(DEADLINE_SECS)
        assert end.recv(1) == b"."
    made.leave(0)
    made.join(DEADLINE_SECS)
    for end in others.hears.values():
        words = b""
        while b"x" not in words:
            words += end.recv(100)
        assert words.endswith(b"x\0")
    assert not ended


def test_names_whose_connection_is_closed(
    others: Others, ended: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    made = run_watch(others)
    others.says[2].close()
    made.join(DEADLINE_SECS)
    assert ended == [1]
    err = capsys.readouterr().err
    assert err.startswith("train.py: worker 2 (c:3) has closed its connection")
    assert err.count("\n") == 1


def test_names_who_is_silent(
    others: Others,
    ended: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_SILENCE_SECS", 1.0)
    is_over = beat(others, (2,))
    made = run_watch(others)
    made.join(DEADLINE_SECS)
    is_over.set()
    assert ended == [1]
    assert "worker 1 (b:2) has been silent for 1 s" in capsys.readouterr().err


def test_who_has_slept_blames_nobody(
    others: Others, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_SILENCE_SECS", 1.0)
    made = watch.Watch(CLUSTER, others.links)
    made._heard = dict.fromkeys(made._heard, time.monotonic() - 1000)
    is_over = beat(others, (1, 2))
    made.start()
    made.join(0.5)
    assert made.is_alive()
    made.leave(0)
    made.join(DEADLINE_SECS)
    is_over.set()
    assert not ended


@pytest.mark.parametrize(
    ("said", "code"), [(0, None), (1, 1), (2, 1), (42, 42)]
)
def test_who_says_goodbye_is_given_time(
    others: Others,
    ended: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    said: int,
    code: int | None,
) -> None:
    monkeypatch.setattr(watch, "_LEAVE_SECS", 0.5)
    is_over = beat(others, (2,))
    made = run_watch(others)
    others.says[1].sendall(b".x" + bytes([said]))
    others.says[1].close()
    made.join(2 if code is None else DEADLINE_SECS)
    assert made.is_alive() == (code is None)
    made.leave(0)
    made.join(DEADLINE_SECS)
    is_over.set()
    assert ended == ([] if code is None else [code])
    if code is not None:
        words = f"worker 1 (b:2) has ended with exit code {said}"
        assert words in capsys.readouterr().err


def test_without_others_nothing_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_watch", None)
    watch.leave(1)
    watch.wait_for_verdict()
