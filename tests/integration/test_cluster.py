"""Descriptions of the cluster, as their user meets them."""

import json
import time

import pytest

from tests import processes
from tests.strategies import test_multi_worker_mirrored
from tests.strategies.cluster import test_preflight

FLAGS = ("--strategy=multi_worker_mirrored", "--model_dir=runs/refused")
# Generous: other tests run beside this one. Alone it takes 0.3 s.
LIMIT_SECS = 3


@pytest.mark.parametrize(
    "kind",
    [
        "nothing",
        "not JSON",
        "parameter server",
        "address twice",
        "sbatch without srun",
        "endless list",
        "pods not counted",
    ],
)
def test_is_refused_before_tensorflow(kind: str) -> None:
    start = time.monotonic()
    done = processes.run(
        "importtime",
        "train.py",
        *FLAGS,
        env=test_preflight.MALFORMED[kind],
        program="-X",
    )
    assert time.monotonic() - start < LIMIT_SECS
    assert done.returncode == 2
    imported, said = [], []
    for line in done.stderr.splitlines():
        is_import = line.startswith("import time:")
        (imported if is_import else said).append(line)
    assert len(said) == 1, said
    assert said[0].startswith("train.py: ")
    assert any("strategies.cluster.find" in line for line in imported)
    assert not any("tensorflow" in line for line in imported)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--cluster=k8s", "must be one of auto, tf_config, slurm, kubernetes"),
        ("--cluster=slurm", "SLURM_STEP_NODELIST is not set"),
    ],
)
def test_flag_is_refused(flag: str, message: str) -> None:
    done = processes.run(*FLAGS, flag)
    assert done.returncode == 2
    assert message in done.stderr


def test_tasks_of_a_slurm_step_train_together() -> None:
    """TensorFlow reads `TF_CONFIG`, which only the program itself has set."""
    cluster = json.loads(processes.tf_configs(2)[0])["cluster"]
    ports = [address.rpartition(":")[2] for address in cluster["worker"]]
    step = {
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_RESV_PORTS": ",".join(ports),
    }
    tasks = [
        processes.start(
            test_multi_worker_mirrored._PROGRAM,
            env={**step, "SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)},
            program="-c",
        )
        for i in range(2)
    ]
    for i, task in enumerate(tasks):
        done = processes.finish(task)
        assert done.returncode == 0, done.stderr
        found, *_, result = done.stdout.splitlines()
        assert found == (
            f"Cluster from Slurm's variables: worker {i} "
            f"(localhost:{ports[i]}), 1 peer: localhost:{ports[1 - i]}"
        )
        assert result == "2 2 2.0"
