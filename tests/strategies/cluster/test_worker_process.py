import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strategies.cluster import worker_process
from strategies.cluster.worker_process import WorkerProcess
from tests import processes

# The launcher has one thread; this process has TensorFlow's, and Python 3.12
# warns of a fork among them.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded")


@contextmanager
def started(
    code: str, log: Path, lines: list[bytes] | None = None, **changes: object
) -> Iterator[WorkerProcess]:
    """Starts `python -c code`, bounded by an alarm."""
    bounded = f"import signal; signal.alarm(60)\n{code}"
    worker = WorkerProcess(
        3,
        [sys.executable, "-c", bounded],
        **{
            "environ": {},
            "cores": (),
            "log": log,
            "echo": ([] if lines is None else lines).append,
            **changes,
        },
    )
    try:
        yield worker
    finally:
        worker.close()


def run(code: str, log: Path, **changes: object) -> tuple[int, list[bytes]]:
    """Returns the exit code and the lines that were echoed."""
    lines: list[bytes] = []
    with started(code, log, lines, **changes) as worker:
        codes = worker_process.watch([worker], [], math.inf)
    return codes[3], lines


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie that waits for its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lines_are_named_and_the_log_holds_every_byte(tmp_path) -> None:
    log = tmp_path / "logs" / "log"
    code = r"""
import os
os.write(1, b"one\ntwo \xff\n\n10 %\r20 %\r\n")
os.write(2, b"an error\n")
os.write(1, b"no end")
"""
    exit_code, lines = run(code, log)
    assert exit_code == 0
    texts = [b"one", b"two \xff", b"10 %", b"20 %", b"an error", b"no end"]
    assert lines == [b"[worker 3] " + text for text in texts]
    header, _, rest = log.read_bytes().partition(b"\none")
    assert header.startswith(b"---- ")
    assert sys.executable.encode() in header
    assert rest == b"\ntwo \xff\n\n10 %\r20 %\r\nan error\nno end"
    run("print('again')", log)
    assert log.read_bytes().count(b"---- ") == 2
    assert log.read_bytes().endswith(b"again\n")


def test_a_line_without_end_is_not_held_for_ever(tmp_path) -> None:
    length = 5 * worker_process._MOST_BYTES
    _, lines = run(f"print('x' * {length}, end='')", tmp_path / "log")
    assert len(lines) > 1
    assert sum(line.count(b"x") for line in lines) == length


def test_what_python_holds_back_is_not_lost_with_a_kill(tmp_path) -> None:
    code = "import os, signal; print('last'); os.kill(os.getpid(), 9)"
    exit_code, lines = run(code, tmp_path / "log")
    assert exit_code == -signal.SIGKILL
    assert lines == [b"[worker 3] last"]


def test_has_a_group_variables_cores_and_no_input_of_its_own(tmp_path) -> None:
    core = min(os.sched_getaffinity(0))
    code = """
import os, sys
print(os.getpgid(0) == os.getpid(), os.environ["NAME"], os.environ["HOME"],
      os.sched_getaffinity(0), repr(sys.stdin.read()))
"""
    _, lines = run(
        code, tmp_path / "log", environ={"NAME": "value"}, cores=[core]
    )
    home = os.environ["HOME"]
    text = f"[worker 3] True value {home} {{{core}}} ''"
    assert lines == [text.encode()]


@pytest.mark.parametrize("place", ["a_file", "/dev/full"])
def test_a_log_that_cannot_be_written_costs_only_itself(
    tmp_path, place
) -> None:
    if place == "a_file":
        (tmp_path / "logs").touch()
        log, message = tmp_path / "logs" / "log", b"no log: "
    else:
        log, message = tmp_path / "log", b"the log ends here: "
        log.symlink_to("/dev/full")
    exit_code, lines = run("print('goes on')", log)
    assert exit_code == 0
    assert [line for line in lines if message in line] == lines[:1]
    assert lines[1:] == [b"[worker 3] goes on"]


def test_what_cannot_be_started_raises_and_leaves_nothing_open(
    tmp_path,
) -> None:
    before = os.listdir("/proc/self/fd")
    for command, cores in (
        (["/no/such/program"], ()),
        ([sys.executable], [10**6]),
    ):
        with pytest.raises(OSError, match=r"No such file|preexec"):
            WorkerProcess(
                0,
                command,
                environ={},
                cores=cores,
                log=tmp_path / "log",
                echo=print,
            )
    assert len(os.listdir("/proc/self/fd")) == len(before)


CHILD = """
import subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", "import signal; signal.alarm(60); signal.pause()"])
print(child.pid)
"""


@pytest.mark.parametrize("end", ["itself", "kill", "close"])
def test_what_a_worker_has_started_ends_with_it(tmp_path, end) -> None:
    """The child holds the pipe of the output open; nobody waits for that."""
    lines: list[bytes] = []
    code = CHILD if end == "itself" else f"{CHILD}time.sleep(60)"
    with started(code, tmp_path / "log", lines) as worker:
        deadline = time.monotonic() + 30
        while not lines:
            worker.relay()
            assert time.monotonic() < deadline
        pid = int(lines[0].split()[-1])
        if end == "kill":
            worker.kill()
        if end != "close":
            codes = worker_process.watch([worker], [], math.inf)
            assert codes[3] == (0 if end == "itself" else -signal.SIGKILL)
    wait_until_gone(pid)


def test_a_worker_whose_parent_has_gone_does_not_start() -> None:
    code = """
from strategies.cluster import worker_process
worker_process._make_tie(1, ())()
print("goes on")
"""
    done = processes.run(code, program="-c")
    assert done.returncode == 1
    assert not done.stdout


def test_dies_with_a_parent_that_is_killed(tmp_path) -> None:
    parent = f"""
import sys, time
from pathlib import Path
from strategies.cluster.worker_process import WorkerProcess
worker = WorkerProcess(0, [sys.executable, "-c",
    "import os, signal; signal.alarm(60); print(os.getpid()); signal.pause()"],
    environ={{}}, cores=(), log=Path({str(tmp_path / "log")!r}),
    echo=lambda line: print(line.decode(), flush=True))
while True:
    worker.relay()
"""
    process = processes.start(parent, program="-c")
    assert process.stdout
    pid = int(process.stdout.readline().split()[-1])
    assert is_running(pid)
    process.kill()
    process.communicate()
    wait_until_gone(pid)


@pytest.mark.parametrize(
    ("codes", "signalled", "bound"),
    [
        ({}, [], math.inf),
        ({0: 0}, [], math.inf),
        ({0: 1}, [], 100 + worker_process._END_SECS),
        ({0: -9}, [70], 100 + worker_process._END_SECS),
        ({0: 42}, [], 160),
        ({}, [70], 130),
        ({0: 42}, [70], 130),
        ({}, [99, 99.5], 159),
        ({}, [90, 91, 92.5], 100),
    ],
    ids=[
        "running",
        "one_done",
        "one_failed",
        "failed_while_stopping",
        "one_interrupted",
        "signalled",
        "signalled_and_interrupted",
        "second_signal_too_soon",
        "second_signal",
    ],
)
def test_who_still_runs_has_until(monkeypatch, codes, signalled, bound) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100)
    assert worker_process._bound(codes, signalled, 60) == bound


@pytest.mark.parametrize("obeys", [True, False])
def test_one_that_fails_takes_the_others_with_it(
    tmp_path, monkeypatch, obeys
) -> None:
    """SIGTERM first; SIGKILL for whom it does not move."""
    if not obeys:
        monkeypatch.setattr(worker_process, "_END_SECS", 0.2)
    ready = tmp_path / "ready"
    handler = "lambda *_: sys.exit(7)" if obeys else "signal.SIG_IGN"
    waiting = f"""
import pathlib, sys
signal.signal(signal.SIGTERM, {handler})
pathlib.Path({str(ready)!r}).touch()
while True:
    signal.pause()
"""
    failing = f"""
import pathlib, sys, time
while not pathlib.Path({str(ready)!r}).exists():
    time.sleep(0.01)
sys.exit(1)
"""
    with (
        started(waiting, tmp_path / "0") as first,
        started(failing, tmp_path / "1") as second,
    ):
        first.index = 0
        codes = worker_process.watch([first, second], [], math.inf)
    assert list(codes.items()) == [(3, 1), (0, 7 if obeys else -9)]
