"""`launch.py` with real workers."""

import os
import re
import signal
from pathlib import Path

from tests import processes

FLAGS = (
    "--model=mlp",
    "--train_steps=40",
    "--steps_per_loop=1",
    "--checkpoint_every_steps=1",
)


def test_two_workers_train_to_the_end(tmp_path) -> None:
    done = processes.run(
        "--num_workers=2",
        "--",
        *FLAGS,
        f"--model_dir={tmp_path}",
        program="launch.py",
    )
    assert done.returncode == 0, done.stdout
    assert "[worker 1] 2 workers, 2 replicas" in done.stdout
    for index in (0, 1):
        text = f"[worker {index}] Evaluation at step 40: "
        assert done.stdout.count(text) == 1
        log = (tmp_path / "logs" / f"worker-{index}.log").read_text()
        assert "\nEvaluation at step 40: " in log
    assert len(processes.losses(tmp_path)) == 40


def test_a_killed_worker_brings_the_job_back(tmp_path) -> None:
    process = processes.start(
        "--num_workers=2",
        "--",
        *FLAGS,
        f"--model_dir={tmp_path}",
        program="launch.py",
    )
    assert process.stdout
    for line in process.stdout:
        if line.startswith("[worker 0] step 2/"):
            break
    os.kill(_child_of(process.pid, index=1), signal.SIGKILL)
    done = processes.finish(process)
    assert done.returncode == 0, done.stdout
    assert "launch.py: worker 1 was ended by signal 9" in done.stdout
    continued = re.search(
        r"\[worker 0\] Continuing at step (\d+) of 40", done.stdout
    )
    assert continued
    assert int(continued[1]) >= 1
    assert "[worker 1] Evaluation at step 40: " in done.stdout
    steps = [line["step"] for line in processes.read_metrics(tmp_path, "train")]
    assert steps == list(range(1, 41))


def _child_of(launcher: int, index: int) -> int:
    """Returns the process id of a worker: children are listed as started."""
    path = Path(f"/proc/{launcher}/task/{launcher}/children")
    return int(path.read_text().split()[index])
