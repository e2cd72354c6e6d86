import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest

import launch
from errors import RequestError
from tests import processes

# Runs the launcher on another program than train.py. Python code from the
# environment goes first. A shell may have had signals ignored.
LAUNCH = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
import launch
from strategies.cluster import worker_process
exec(os.environ.get("BEFORE", ""))
sys.exit(launch.main(sys.argv[2:], sys.argv[1]))
"""

# What all fake workers begin with. `start` counts the starts of this worker.
WORKER = '''
import json, os, pathlib, signal, sys, time
signal.alarm(60)
words = dict(word[2:].split("=", 1) for word in sys.argv[1:])
folder = pathlib.Path(words["model_dir"])
cluster = json.loads(os.environ["TF_CONFIG"])
index = cluster["task"]["index"]
count = len(cluster["cluster"]["worker"])
with (folder / f"starts-{index}").open("a") as file:
    file.write(f"{count}\\n")
start = len((folder / f"starts-{index}").read_text().splitlines())

def report(step):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step}) + "\\n")

def wait():
    while True:
        signal.pause()

def meet():
    """Waits until all workers have started as often as this one."""
    while not all(
        (folder / f"starts-{other}").exists()
        and (folder / f"starts-{other}").read_text().count("\\n") >= start
        for other in range(count)
    ):
        time.sleep(0.01)
'''


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Gives a function that launches fake workers: code, flags → process."""
    with contextlib.ExitStack() as stack:

        def start(code: str, *flags: str, before: str = "") -> subprocess.Popen:
            (tmp_path / "worker.py").write_text(WORKER + code)
            own = flags or ("--num_workers=2",)
            process = processes.start(
                LAUNCH,
                str(tmp_path / "worker.py"),
                *own,
                *(() if "--" in own else ("--",)),
                f"--model_dir={tmp_path}",
                program="-c",
                env={"BEFORE": before},
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def run(start) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Returns a function like `start`, up to the end of the launcher."""

    def run(*args: str, before: str = "") -> subprocess.CompletedProcess[str]:
        return processes.finish(start(*args, before=before), 60)

    return run


def starts(folder: Path, worker: int = 0) -> list[int]:
    """Returns how many workers there were at each start of one of them."""
    text = (folder / f"starts-{worker}").read_text()
    return [int(line) for line in text.splitlines()]


def wait_for(process: subprocess.Popen[str], text: str, times: int) -> None:
    """Reads the output until a text has come so many times."""
    assert process.stdout
    for line in process.stdout:
        times -= text in line
        if not times:
            return
    pytest.fail(f"{text!r} has not come")


def test_workers_get_a_cluster_cores_and_flags_of_their_own(
    run, tmp_path
) -> None:
    code = """
print("seen", json.dumps({
    "cluster": cluster, "words": words, "cores": [*os.sched_getaffinity(0)],
    "cwd": os.getcwd()}))
"""
    done = run(code, "--num_workers=2", "--", "--model=mlp")
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"^\[worker (\d)\] seen (.*)$", done.stdout, re.M)
    seen = {int(index): json.loads(text) for index, text in lines}
    assert seen[0]["cluster"]["cluster"] == seen[1]["cluster"]["cluster"]
    assert len(set(seen[0]["cluster"]["cluster"]["worker"])) == 2
    for index in (0, 1):
        assert seen[index]["cluster"]["task"]["index"] == index
        assert seen[index]["words"] == {
            "strategy": "multi_worker_mirrored",
            "model": "mlp",
            "model_dir": str(tmp_path),
        }
        assert seen[index]["cwd"] == str(processes.ROOT)
        log = (tmp_path / "logs" / f"worker-{index}.log").read_text()
        assert "\nseen {" in log
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        shares = [set(seen[index]["cores"]) for index in (0, 1)]
        assert shares[0] | shares[1] == cores
        assert not shares[0] & shares[1]


@pytest.mark.parametrize("pin", ["--pin=false", "--pin", "--pin=true"])
def test_pinning_can_be_switched_off(run, pin) -> None:
    code = "print('cores', len(os.sched_getaffinity(0)))"
    done = run(code, "--num_workers=2", pin)
    total = len(os.sched_getaffinity(0))
    if pin == "--pin=false" or total == 1:
        assert done.stdout.count(f"cores {total}\n") == 2
    else:
        assert f"cores {total}\n" not in done.stdout


def test_says_what_is_open_unless_isolated(run) -> None:
    done = run("import socket; print('sees', socket.if_nameindex())")
    assert done.stdout.count("on every interface without authentication") == 1
    ports = re.search(r"listens at ports \[(\d+), (\d+)\] on", done.stdout)
    assert ports
    assert ports[1] != ports[2]


def test_isolated_workers_reach_each_other_and_nothing_else(run) -> None:
    code = """
import socket
port = int(cluster["cluster"]["worker"][0].rpartition(":")[2])
if index == 0:
    with socket.create_server(("", port)) as server:
        server.accept()
else:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
print("sees", socket.if_nameindex())
"""
    done = run(code, "--num_workers=2", "--isolate_network")
    if done.returncode == 2:
        assert "this system allows no network namespace" in done.stderr
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sees [(1, 'lo')]") == 2
    assert "on every interface" not in done.stdout


def test_isolation_is_refused_where_there_is_none(run, tmp_path) -> None:
    before = """
from strategies.cluster import loopback
loopback._LIBC = object()
"""
    done = run("", "--num_workers=2", "--isolate_network", before=before)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "this system allows no network namespace" in done.stderr
    assert not (tmp_path / "logs").exists()


def test_a_failure_starts_all_again_on_other_ports(run, tmp_path) -> None:
    code = """
print("cluster", *cluster["cluster"]["worker"])
meet()
if start == 1 and index == 1:
    report(7)
    sys.exit(1)
if start == 1:
    wait()
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert starts(tmp_path, 0) == starts(tmp_path, 1) == [2, 2]
    assert "worker 1 ended with exit code 1 (last step reported: step 7" in (
        done.stdout
    )
    assert "starting again, 2 restarts left" in done.stdout
    clusters = re.findall(r"^\[worker 1\] cluster (.*)$", done.stdout, re.M)
    assert len(set(clusters)) == 2
    log = (tmp_path / "logs" / "worker-0.log").read_text()
    assert log.count("---- ") == 2


def test_a_job_that_fails_on_is_given_up(run, tmp_path) -> None:
    code = "report(start); sys.exit(1)"
    done = run(code, "--num_workers=1", "--max_restarts=2")
    assert done.returncode == 1
    assert starts(tmp_path) == [1, 1, 1]
    assert "no restart is left: giving up" in done.stdout


def test_two_failures_at_one_step_end_the_job(run, tmp_path) -> None:
    done = run("report(5); sys.exit(1)", "--num_workers=1")
    assert done.returncode == 1
    assert starts(tmp_path) == [1, 1]
    assert "the failure before was at the same step: giving up" in done.stdout


def test_a_wrong_request_is_not_tried_twice(run, tmp_path) -> None:
    done = run("sys.exit(2) if index == 1 else wait()")
    assert done.returncode == 2
    assert starts(tmp_path, 1) == [2]


def test_preemptions_do_not_count(run, tmp_path) -> None:
    code = "meet(); sys.exit(42 if start < 4 else 0)"
    done = run(code, "--num_workers=2", "--max_restarts=0")
    assert done.returncode == 0, done.stderr
    assert starts(tmp_path) == [2] * 4
    assert done.stdout.count("the workers were interrupted") == 3


def test_a_worker_that_does_not_come_back_is_done_without(
    run, tmp_path
) -> None:
    """3 workers do not divide the default batch of 64."""
    code = "meet(); sys.exit(1) if index == 3 else count == 4 and wait()"
    done = run(code, "--num_workers=4", "--min_workers=1")
    assert done.returncode == 0, done.stderr
    assert starts(tmp_path) == [4, 4, 2]
    assert "going on with --num_workers=2" in done.stdout


def test_a_worker_that_cannot_be_started_is_done_without(run, tmp_path) -> None:
    before = """
class WorkerProcess(worker_process.WorkerProcess):
    def __init__(self, index, command, **rest):
        super().__init__(index, ["/none"] if index == 1 else command, **rest)
launch.WorkerProcess = WorkerProcess
"""
    flags = ("--num_workers=2", "--min_workers=1")
    done = run("wait() if count == 2 else None", *flags, before=before)
    assert done.returncode == 0, done.stderr
    assert "launch.py: worker 1: " in done.stdout
    assert "worker 1 could not be started" in done.stdout
    assert starts(tmp_path)[-1] == 1


SAVING = """
def save(*_):
    print("saves", flush=True)
    sys.exit(42)

signal.signal(signal.SIGTERM, save)
print("ready")
wait()
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str
)
def test_a_signal_is_passed_on_and_the_job_can_go_on(
    start, tmp_path, number
) -> None:
    process = start(SAVING)
    wait_for(process, "ready", 2)
    process.send_signal(number)
    done = processes.finish(process, 60)
    assert done.returncode == 42, done.stderr
    assert done.stdout.count("saves") == 2
    assert f"interrupted; --model_dir={tmp_path} continues it" in done.stdout
    assert starts(tmp_path) == [2]


def test_a_job_that_is_done_when_signalled_is_done(start) -> None:
    process = start(SAVING.replace("42", "0"))
    wait_for(process, "ready", 2)
    process.terminate()
    assert processes.finish(process, 60).returncode == 0


DEAF = """
signal.signal(signal.SIGTERM, lambda *_: print("deaf", flush=True))
print("ready")
wait()
"""


def test_who_does_not_stop_in_time_is_killed(start) -> None:
    process = start(DEAF, "--num_workers=2", "--grace_secs=0.5")
    wait_for(process, "ready", 2)
    process.terminate()
    assert processes.finish(process, 60).returncode == 42


def test_a_second_signal_ends_all_at_once(start) -> None:
    """One that comes too soon after the first does not."""
    before = "worker_process._SECOND_SIGNAL_SECS = 0.5"
    process = start(DEAF, "--num_workers=2", "--grace_secs=600", before=before)
    wait_for(process, "ready", 2)
    deadline = time.monotonic() + 60
    process.terminate()
    first = time.monotonic()
    while process.poll() is None:
        assert time.monotonic() < deadline
        process.terminate()
        time.sleep(0.05)
    assert time.monotonic() - first > 0.4
    out, _ = process.communicate()
    assert process.returncode == 42
    assert out.count("deaf") == 2


def test_nohup_is_respected(start, tmp_path) -> None:
    before = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    process = start(SAVING, before=before)
    wait_for(process, "ready", 2)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert processes.finish(process, 60).returncode == 42


def test_a_killed_launcher_leaves_no_worker(start) -> None:
    process = start("print('pid', os.getpid()); wait()")
    assert process.stdout
    pids = []
    for line in process.stdout:
        if "] pid " in line:
            pids.append(int(line.split()[-1]))
        if len(pids) == 2:
            break
    process.kill()
    deadline = time.monotonic() + 30
    for pid in pids:
        state = Path(f"/proc/{pid}/stat")
        while state.exists() and ") Z " not in state.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_job_outlives_the_reader_of_its_output(start, tmp_path) -> None:
    code = """
print("ready", flush=True)
while not (folder / "closed").exists():
    time.sleep(0.01)
for number in range(2000):
    print("line", number)
"""
    process = start(code, "--num_workers=1")
    wait_for(process, "ready", 1)
    assert process.stdout
    process.stdout.close()
    (tmp_path / "closed").touch()
    assert process.wait(60) == 0
    log = (tmp_path / "logs" / "worker-0.log").read_text()
    assert log.endswith("line 1999\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "-- is missing"),
        (["--num_workers=2", "--model=mlp"], "-- is missing"),
        (["--"], "--num_workers=0: must be at least 1"),
        (["--num_workers=0", "--"], "--num_workers=0: must be at least 1"),
        (["--num_workers=two", "--"], "--num_workers: invalid int"),
        (["--num_workers=2", "--num=2", "--"], "unrecognized .*--num=2"),
        (["--num_workers=2", "word", "--"], "unrecognized .*word"),
        (["--num_workers=2", "--max_restarts=-1", "--"], "at least 0"),
        (["--num_workers=2", "--grace_secs=nan", "--"], "at least 0"),
        (["--num_workers=2", "--min_workers=3", "--"], "1 and at most 2"),
        (["--num_workers=2", "--min_workers=-1", "--"], "at least 1"),
        (["--num_workers=2", "--pin=no", "--"], "--pin: invalid choice"),
        (
            ["--num_workers=2", "--", "--global_batch_size=many"],
            "--global_batch_size.*invalid int",
        ),
        (
            ["--num_workers=2", "--", "--model_dir=gs://bucket/run"],
            "--model_dir=gs://bucket/run: .* a folder of this machine",
        ),
    ],
    ids=str,
)
def test_refuses_in_one_line(argv, message, capsys) -> None:
    with pytest.raises(RequestError, match=message):
        launch.read(argv)
    assert launch.main(argv) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert re.search(f"^launch.py: .*{message}", err)


def test_help_names_every_flag(capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        launch.read(["--help"])
    out = capsys.readouterr().out
    for name in ("num_workers", "min_workers", "pin", "isolate_network"):
        assert f"--{name} " in out


@pytest.mark.parametrize(
    "words",
    [
        ["--model_dir=d", "--strategy=s", "--global_batch_size=6"],
        ["--model_dir", "d", "-strategy=s", "--global_batch_size", "6"],
        ["--seed=1", "-model_dir", "d", "--flagfile=FILE"],
    ],
    ids=["equals", "spaces", "flag_file"],
)
def test_what_is_given_is_not_added(tmp_path, words) -> None:
    file = tmp_path / "flags"
    file.write_text("# ours\n--strategy=s\n--global_batch_size=6\n")
    words = [word.replace("FILE", str(file)) for word in words]
    options, passed = launch.read(["--num_workers=2", "--", *words])
    assert passed == words
    assert (options.model_dir, options.global_batch_size) == ("d", 6)


def test_what_is_missing_is_added_in_front() -> None:
    words = ["--model=mlp", "--flagfile=/none"]
    options, passed = launch.read(["--num_workers=2", "--", *words])
    assert options.model_dir.startswith("runs/launch-")
    assert not Path(options.model_dir).exists()
    assert options.global_batch_size == 64
    assert passed == [
        f"--model_dir={options.model_dir}",
        "--strategy=multi_worker_mirrored",
        *words,
    ]


def test_needs_no_tensorflow() -> None:
    code = """
import sys
import launch
print({"tensorflow", "keras", "numpy", "absl"} & set(sys.modules))
"""
    assert processes.run(code, program="-c").stdout == "set()\n"
