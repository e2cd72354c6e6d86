"""In processes of their own: a signal is for a whole process."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_SECS = 60
# Signals itself from a thread, while the main thread is in a compiled loop
# that runs no Python.
HEAD = """
import contextlib, os, signal, sys, threading, time
from training import preemption
preemption.listen(lambda code: print("left", code))

def send(*names, pause=0.0):
    def run():
        for name in names:
            os.kill(os.getpid(), getattr(signal, name))
            time.sleep(pause)
    threading.Thread(target=run, daemon=True).start()
"""


def run(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + body],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECS,
        check=False,
    )


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_ends_at_once_where_there_is_nothing_to_save(name: str) -> None:
    done = run(f"send({name!r}); time.sleep(50)")
    assert done.returncode == 42
    assert f"{name}: stopped, there was nothing to save" in done.stderr
    assert done.stdout == "left 42\n"
    assert done.stderr.count("\n") == 1


def test_is_heard_in_the_midst_of_a_compiled_loop() -> None:
    done = run("""
import tensorflow as tf
flag = tf.Variable(0)

@tf.function(autograph=False)
def loop():
    return tf.while_loop(lambda n: flag < 1, lambda n: [n + 1], [0])[0]

with preemption.calling(lambda: flag.assign(1), 30):
    threading.Timer(1.0, send, ["SIGTERM"]).start()
    print("steps", loop().numpy() > 0)
sys.exit(3)
""")
    assert done.returncode == 3
    assert done.stdout == "steps True\n"
    assert "SIGTERM: saving after the step that runs" in done.stderr


def test_says_what_it_does_instead_of_saving() -> None:
    done = run("""
with preemption.calling(lambda: None, 30, "ending what runs"):
    send("SIGTERM")
    time.sleep(1)
""")
    assert done.returncode == 0
    assert done.stderr == "train.py: SIGTERM: ending what runs\n"


def test_gives_up_when_the_grace_is_over() -> None:
    start = time.monotonic()
    done = run("""
with preemption.calling(lambda: None, 1.0):
    send("SIGTERM")
    time.sleep(50)
""")
    assert done.returncode == 42
    assert "not saved within 1 s (--preemption_grace_secs)" in done.stderr
    assert time.monotonic() - start < 40


def test_a_second_signal_soon_after_is_the_same_request() -> None:
    done = run("""
asked = []
with preemption.calling(lambda: asked.append(1), 30):
    send("SIGINT", "SIGTERM")
    time.sleep(1.5)
print(asked)
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1]\n"


def test_a_second_signal_later_stops_at_once() -> None:
    done = run("""
with preemption.calling(lambda: None, 30):
    send("SIGINT", "SIGINT", pause=2.5)
    time.sleep(50)
""")
    assert done.returncode == 42
    assert "SIGINT again: stopped at once" in done.stderr
    assert done.stdout == "left 42\n"


def test_nobody_needs_to_listen() -> None:
    from training import preemption

    with preemption.calling(lambda: None, 1):
        pass
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
