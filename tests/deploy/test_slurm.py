"""The batch file, on a real Slurm of two nodes, and with stand-ins for it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import processes
from tests.deploy import slurm_cluster
from tests.deploy.slurm_cluster import Cluster

SCRIPT = processes.ROOT / "deploy" / "slurm" / "train.sbatch"
STEPS = 12_000
FLAGS = (
    "--model=mlp",
    f"--train_steps={STEPS}",
    "--steps_per_loop=2000",
    "--eval_every_steps=0",
    "--checkpoint_every_steps=0",
    "--global_batch_size=8",
)
SRUN = """#!/bin/sh
echo "$@" > srun.calls
exit $CODE
"""
SCONTROL = """#!/bin/sh
echo "$@" > scontrol.calls
"""


@pytest.mark.parametrize("code", [0, 1, 2, 42])
def test_only_an_interruption_is_queued_again(tmp_path, code) -> None:
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", SCRIPT, "--model=cnn", "--run_name=a b"],
        cwd=tmp_path,
        env={"PATH": path, "SLURM_JOB_ID": "7", "CODE": str(code)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert (tmp_path / "srun.calls").read_text() == (
        "--label .venv/bin/python train.py --strategy=multi_worker_mirrored "
        "--cluster=slurm --model_dir=runs/slurm-7 --model=cnn --run_name=a b\n"
    )
    calls = tmp_path / "scontrol.calls"
    assert calls.exists() == (code == 42)
    if code == 42:
        assert calls.read_text() == "requeue 7\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := slurm_cluster.missing():
        pytest.skip(reason)
    # pytest's own folders have names too long for a socket.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        with slurm_cluster.running(Path(folder)) as started:
            yield started


class Job:
    """A run of the batch file."""

    def __init__(self, cluster: Cluster, model_dir: Path) -> None:
        self.cluster = cluster
        self.model_dir = model_dir
        self.output = model_dir.with_suffix(".out")
        self.number = cluster.call(
            "sbatch",
            "--parsable",
            f"--output={self.output}",
            f"--export=ALL,PYTHON={sys.executable}",
            str(SCRIPT),
            *FLAGS,
            f"--model_dir={model_dir}",
            cwd=processes.ROOT,
        ).strip()

    def has_said(self, words: str) -> bool:
        self.state()  # fails if the job has
        return self.output.exists() and words in self.output.read_text()

    def state(self) -> dict[str, str]:
        text = self.cluster.call("scontrol", "show", "job", "-o", self.number)
        words = [word.partition("=") for word in text.split()]
        state = {name: value for name, _, value in words}
        assert state["JobState"] != "FAILED", text + self.output.read_text()
        return state

    def finish(self) -> None:
        slurm_cluster.wait_until(self._is_done, processes.DEADLINE_SECS)

    def _is_done(self) -> bool:
        state = self.state()
        if state["Reason"] == "BeginTime" and self.cluster.is_idle():
            # Slurm waits for two minutes, so that what the nodes still have to
            # say of the first start is not taken for the second's.
            self.cluster.call(
                "scontrol", "update", f"JobId={self.number}", "StartTime=now"
            )
        return state["JobState"] == "COMPLETED"

    def weights(self) -> dict[str, np.ndarray]:
        path = self.model_dir / "checkpoints" / f"step-{STEPS}"
        reader = tf.train.load_checkpoint(str(path))
        names = reader.get_variable_to_shape_map()
        return {name: reader.get_tensor(name) for name in names}


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory) -> dict[str, np.ndarray]:
    job = Job(cluster, tmp_path_factory.mktemp("slurm") / "undisturbed")
    job.finish()
    assert job.state()["Restarts"] == "0"
    return job.weights()


@pytest.mark.slow
def test_a_requeued_job_ends_with_the_same_weights(
    cluster, tmp_path, undisturbed
) -> None:
    job = Job(cluster, tmp_path / "requeued")
    slurm_cluster.wait_until(lambda: job.has_said("step 4000/"))
    cluster.call("scontrol", "requeue", job.number)
    job.finish()
    _check(job, undisturbed)


# Run on the second node, in the job: the process of its task.
_END_TASK = """
kill -TERM $(scontrol listpids {number}.0 | awk '$4 == 0 {{print $1}}')
"""


@pytest.mark.slow
def test_a_signalled_worker_has_the_job_queued_again(
    cluster, tmp_path, undisturbed
) -> None:
    job = Job(cluster, tmp_path / "signalled")
    slurm_cluster.wait_until(lambda: job.has_said("step 4000/"))
    place = (f"--jobid={job.number}", "--overlap", "--nodelist=node2")
    script = _END_TASK.format(number=job.number)
    cluster.call("srun", *place, "--ntasks=1", "sh", "-c", script)
    job.finish()
    assert "1: train.py: SIGTERM: saving" in job.output.read_text()
    assert "0: train.py: SIGTERM: saving" not in job.output.read_text()
    _check(job, undisturbed)


def _check(job: Job, undisturbed: dict[str, np.ndarray]) -> None:
    assert job.state()["Restarts"] == "1"
    said = job.output.read_text()
    assert f"of {STEPS} is saved" in said
    assert f" of {STEPS}; everything is in {job.model_dir}" in said
    weights = job.weights()
    assert weights.keys() == undisturbed.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(value, undisturbed[name], name)
