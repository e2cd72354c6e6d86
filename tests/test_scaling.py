"""The whole way: processes that measure, what they print, how they end."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

import scaling
from errors import RequestError
from errors import RunError
from strategies import StrategyConfig
from tests import processes

SHORT = ("--mode=scaling", "--model=mlp", "--scaling_secs=1")
WORKERS = "--strategy=multi_worker_mirrored"
TWO = "--devices=cpu:0,cpu:1"
TWO_CORES = """
import os
import runpy
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("config", "gpus", "devices"),
    [
        ({}, 0, ["cpu:0", "cpu:1", "cpu:2"]),
        ({}, 2, ["gpu:0", "gpu:1"]),
        ({"devices": ("gpu:1",)}, 2, ["gpu:1"]),
        ({"devices": ("cpu:0", "cpu:1")}, 2, ["cpu:0", "cpu:1"]),
        ({"strategy": "multi_worker_mirrored"}, 0, 3 * ["cpu:0"]),
        ({"strategy": "multi_worker_mirrored"}, 2, ["gpu:0", "gpu:1"]),
        (
            {"strategy": "multi_worker_mirrored", "devices": ("cpu:0",)},
            2,
            3 * ["cpu:0"],
        ),
    ],
    ids=[
        "cores",
        "gpus",
        "a named gpu",
        "named cpus",
        "workers on cores",
        "workers on gpus",
        "workers on named cores",
    ],
)
def test_finds_a_device_for_each_replica(config, gpus, devices) -> None:
    assert scaling.find_devices(StrategyConfig(**config), gpus, 3) == devices


@pytest.mark.parametrize(
    ("codes", "error", "message"),
    [
        ({0: 0, 1: 0}, None, ""),
        ({0: 2, 1: -15}, RequestError, "^--seed=x: no$"),
        ({1: 1, 0: 2}, RunError, "^scaling: 2 workers: OSError: disk$"),
        ({0: -9}, RunError, "ended by signal 9"),
        ({2: 1}, RunError, "no word"),
    ],
    ids=["all well", "refused", "failed", "killed", "silent"],
)
def test_the_first_that_fails_has_the_last_word(codes, error, message) -> None:
    said = [
        "[worker 0] train.py: --seed=x: no",
        "[worker 1] Traceback (most recent call last):",
        "[worker 0] and more",
        "[worker 1] OSError: disk",
        "[worker 1] W1130 17:00:00.000000 1 file.cc:1] later",
    ]
    if error is None:
        scaling._check_ends(codes, said, "2 workers")
        return
    with pytest.raises(error, match=message):
        scaling._check_ends(codes, said, "2 workers")


def test_two_replicas_leave_the_figures_alone(tmp_path) -> None:
    done = processes.run(
        *SHORT, TWO, "--global_batch_size=32", f"--model_dir={tmp_path}"
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["scaling.json"]
    content = json.loads((tmp_path / "scaling.json").read_text())
    assert content["data"]["global_batch_size"] == 32
    one, two = content["rows"]
    assert [one["replicas"], two["replicas"]] == [1, 2]
    assert one["efficiency"] == 1
    assert one["all_reduce"] == 0
    for way in ("real", "constant", "apart", "strong"):
        assert two[f"{way}_examples_per_sec"] > 0
    lines = done.stdout.splitlines()
    assert lines[0] == "Measuring 1 replica of 32 examples ..."
    assert lines[1] == "Measuring 2 replicas of 32 examples ..."
    assert lines[2].startswith("replicas  examples/s  efficiency")
    assert lines[5].startswith("1 limited by the ")
    assert lines[6].startswith("2 limited by the ")
    assert len(lines) == 7


def test_a_refusal_of_a_replica_is_ours(tmp_path) -> None:
    folder = tmp_path / "run"
    done = processes.run(
        *SHORT, TWO, "--model_options=no_such=3", f"--model_dir={folder}"
    )
    assert done.returncode == 2
    (line,) = _said(done.stderr)
    assert "no_such" in line
    assert not folder.exists()


@pytest.mark.parametrize(
    ("flags", "env", "words"),
    [
        (["--strategy=tpu"], {}, "use --mode=rehearse"),
        (
            [WORKERS],
            {"TF_CONFIG": processes.tf_configs(2)[0]},
            "TF_CONFIG is set",
        ),
    ],
    ids=["tpu", "cluster"],
)
def test_refuses_other_machines(flags, env, words) -> None:
    done = processes.run(*SHORT, *flags, env=env)
    assert done.returncode == 2
    (line,) = _said(done.stderr)
    assert words in line


@pytest.mark.slow
def test_workers_are_measured_together() -> None:
    done = processes.run(TWO_CORES, *SHORT, WORKERS, program="-c")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Measuring 1 worker of 64 examples ..."
    count = min(2, len(os.sched_getaffinity(0)))
    assert lines[-1].startswith(f"{count} limited by the ")


def test_ctrl_c_ends_all_processes() -> None:
    process = processes.start(*SHORT, WORKERS)
    processes.wait_for(process, "Measuring 1 worker of 64 examples")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + processes.DEADLINE_SECS
    # One child passes on what TensorFlow says, until all others are gone.
    while len(child := children.read_text().split()) < 2:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    done = processes.finish(process)
    assert done.returncode == 42
    assert _said(done.stderr) == [
        "train.py: SIGINT: ending what runs",
        "train.py: scaling: stopped; nothing is kept, start it again.",
    ]
    assert not Path(f"/proc/{child[1]}").exists()


def _said(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("train.py")]
