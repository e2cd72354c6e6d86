"""Whatever becomes of a worker, the others end and say who it was."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import processes

WORKERS = "--strategy=multi_worker_mirrored"
FLAGS = (
    "--model=mlp",
    "--train_steps=100000",
    "--steps_per_loop=500",
    "--eval_every_steps=0",
    "--global_batch_size=8",
)
DETECTED_SECS = 30


def end_of_survivor(
    survivor: subprocess.Popen[str], since: float
) -> subprocess.CompletedProcess[str]:
    done = processes.finish(survivor, DETECTED_SECS + 10)
    assert time.monotonic() - since < DETECTED_SECS
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    ("lost", "number"),
    [
        (0, signal.SIGKILL),
        pytest.param(1, signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(0, signal.SIGSTOP, marks=pytest.mark.slow),
        pytest.param(1, signal.SIGSTOP, marks=pytest.mark.slow),
    ],
)
def test_worker_lost_in_training_is_named(
    tmp_path: Path, lost: int, number: signal.Signals
) -> None:
    workers = processes.start_workers(
        2, WORKERS, *FLAGS, f"--model_dir={tmp_path}"
    )
    processes.wait_for(workers[0], "step 500/")
    workers[lost].send_signal(number)
    done = end_of_survivor(workers[1 - lost], time.monotonic())
    workers[lost].kill()
    workers[lost].communicate()
    what = "closed its connection" if number == signal.SIGKILL else "silent"
    lines = [line for line in done.stderr.splitlines() if "train.py:" in line]
    assert len(lines) == 1, done.stderr
    assert f"train.py: worker {lost} (127.0.0.1:" in lines[0]
    assert what in lines[0]


@pytest.mark.slow
@pytest.mark.parametrize("words", ["Cluster from", "2 workers"])
def test_worker_lost_at_the_start_is_named(tmp_path: Path, words: str) -> None:
    """Before all have met, or while the model is traced."""
    flags = [*FLAGS, "--worker_timeout_secs=15", f"--model_dir={tmp_path}"]
    workers = processes.start_workers(2, WORKERS, *flags)
    processes.wait_for(workers[1], words)
    workers[1].kill()
    done = processes.finish(workers[0], 90)
    workers[1].communicate()
    assert done.returncode == 1, done.stderr
    assert "train.py: worker 1 (127.0.0.1:" in done.stderr
    assert "Traceback" not in done.stderr


def test_worker_that_never_comes_is_named(tmp_path: Path) -> None:
    config = processes.tf_configs(2)[0]
    done = processes.run(
        *FLAGS,
        WORKERS,
        "--worker_timeout_secs=3",
        f"--model_dir={tmp_path}",
        env={"TF_CONFIG": config},
    )
    assert done.returncode == 1
    assert "train.py: worker 1 (127.0.0.1:" in done.stderr
    assert "did not come up within 3 s" in done.stderr
    assert "Traceback" not in done.stderr
