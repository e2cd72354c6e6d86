"""`two_workers.sh`, as README says to start it."""

import os
import re
import subprocess
import sys

from tests import processes

_SCRIPT = ["bash", "examples/two_workers.sh"]


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_SCRIPT, *words],
        cwd=processes.ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=processes.DEADLINE_SECS,
        check=False,
    )


def test_a_killed_worker_costs_nothing_but_time(tmp_path) -> None:
    result = _run(str(tmp_path / "run"), "--train_steps=600")
    assert result.returncode == 0, result.stdout + result.stderr
    found = re.search(r"Continuing at step (\d+) of 600", result.stdout)
    assert found
    assert 100 <= int(found[1]) < 600
    assert "exit code 1: train.py: worker 1 (127.0.0.1:" in result.stdout
    assert "Evaluation at step 600: " in result.stdout
    steps = [
        line["step"]
        for line in processes.read_metrics(tmp_path / "run", "train")
    ]
    assert steps == sorted(set(steps))
    assert steps[-1] == 600


def test_a_folder_with_files_is_left_alone(tmp_path) -> None:
    (tmp_path / "other").touch()
    result = _run(str(tmp_path))
    assert result.returncode == 2
    assert result.stderr == (
        f"two_workers.sh: {tmp_path} is not empty; give a new folder.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
