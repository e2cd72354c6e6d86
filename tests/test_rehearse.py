"""The whole way: from the command line to the page."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import processes

TPU = ("--mode=rehearse", "--strategy=tpu")
FAULTY = """
import sys
from absl import app
import train
from flags import command_line
from training import forward, step
{fault}
sys.argv[0] = "train.py"
app.run(train.main, flags_parser=command_line.parse)
"""


def rehearse(folder: Path, *flags: str) -> dict:
    done = processes.run(*TPU, f"--model_dir={folder}", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "rehearsal.json").read_text())


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [
        line for line in done.stderr.splitlines() if line.startswith("train.py")
    ]


def test_images_in_four_parts(tmp_path) -> None:
    content = rehearse(
        tmp_path,
        "--model=cnn",
        "--tpu_topology=v5e:2x2",
        "--computation_shape=2,2,1,1",
        "--partition_dimensions=1,2,2,1",
    )
    assert content["max_loss_difference"] < 1e-4
    assert content["max_weight_difference"] < 1e-4
    kinds = {each["kind"] for each in content["run"]["collectives"]}
    assert "collective-permute" in kinds
    kinds = {each["kind"] for each in content["collectives"]}
    assert "collective-permute" in kinds
    assert content["fits"]
    assert 0 < content["bytes_per_core"] < 1e9
    assert content["run"]["devices"] == 4
    assert (
        "core 3<br>[:, 4:8, 4:8, :]"
        in (tmp_path / "rehearsal.html").read_text()
    )


def test_groups_shared_by_the_devices_of_two_replicas(tmp_path) -> None:
    content = rehearse(
        tmp_path,
        "--model_options=split_groups=true",
        "--tpu_topology=v5e:2x2,v5e:4x4",
        "--computation_shape=2,1,1,1",
    )
    assert content["run"]["replicas"] == 2
    assert content["max_loss_difference"] < 1e-4
    assert content["max_weight_difference"] < 1e-4
    names = [each["name"] for each in content["topologies"]]
    assert names == ["v5e:2x2", "v5e:4x4"]
    batches = [
        each["plan"]["global_batch"] // each["plan"]["replicas"]
        for each in content["topologies"]
    ]
    assert batches == [32, 8]


@pytest.mark.parametrize(
    ("strategy", "plan"),
    [
        (["--strategy=one_device"], "one_device: 1 worker, 1 replica of 1"),
        (
            ["--strategy=mirrored", "--devices=cpu:0,cpu:1"],
            "mirrored: 1 worker, 2 replicas of 1 device",
        ),
    ],
    ids=["one_device", "mirrored"],
)
def test_other_strategies_have_a_plan_and_leave_nothing(
    tmp_path, strategy, plan
) -> None:
    flags = [*strategy, f"--model_dir={tmp_path / 'run'}"]
    done = processes.run("--mode=rehearse", "--model=mlp", *flags)
    assert done.returncode == 0, done.stderr
    assert plan in done.stdout
    assert "  batch: 64 = " in done.stdout
    assert not (tmp_path / "run").exists()


def test_workers_of_tf_config_are_not_waited_for(tmp_path) -> None:
    done = processes.run(
        "--mode=rehearse",
        "--model=mlp",
        "--strategy=multi_worker_mirrored",
        f"--model_dir={tmp_path}",
        env={"TF_CONFIG": processes.tf_configs(4)[1]},
    )
    assert done.returncode == 0, done.stderr
    assert "multi_worker_mirrored: 4 workers, 4 replicas" in done.stdout


UNSUMMED = "step.gradients_lib.exchange = lambda g, others, _: (g, others)"


def test_a_signal_leaves_nothing_behind(tmp_path) -> None:
    process = processes.start(
        *TPU,
        "--model=cnn",
        "--rehearse_steps=300",
        "--tpu_topology=v5e:2x2",
        f"--model_dir={tmp_path / 'run'}",
        env={"TMPDIR": str(tmp_path)},
    )
    with process:
        deadline = time.monotonic() + processes.DEADLINE_SECS
        while not list(tmp_path.glob("rehearsal-*/request.json")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=processes.DEADLINE_SECS)
    assert process.returncode == 1
    assert "a rehearsal leaves nothing to go on from" in err
    while list(tmp_path.glob("rehearsal-*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


PLANTED = {
    "a label left where it is": (
        "forward.place = lambda batch: batch",
        ["--computation_shape=2,2,1,1"],
        "labels or weights, is placed nowhere",
    ),
    "a loss divided by the batch of a replica": (
        "make = forward.make_forward_backward\n"
        "forward.make_forward_backward = lambda strategy, state, task, batch, "
        "config: make(strategy, state, task, "
        "batch // strategy.num_replicas_in_sync, config)",
        ["--computation_shape=2,1,1,1"],
        "differs by",
    ),
    "gradients that are not summed": (
        UNSUMMED,
        ["--computation_shape=2,1,1,1"],
        "is not the same on all replicas",
    ),
    "not summed, with random layers": (
        UNSUMMED,
        ["--model_options=dropout=0.5"],
        "is not the same on all replicas",
    ),
    "an average that moves by the replicas": (
        "update = step.average.update\n"
        "step.average.update = lambda averages, weights, momentum: update("
        "averages, weights, momentum / 4 if 'StandIn' in "
        "step.tf.distribute.get_strategy().__class__.__name__ else momentum)",
        ["--ema_momentum=0.9"],
        "average/",
    ),
}


@pytest.mark.parametrize(
    ("fault", "shape", "words"), PLANTED.values(), ids=PLANTED
)
def test_a_planted_fault_is_found(tmp_path, fault, shape, words) -> None:
    program = tmp_path / "faulty.py"
    program.write_text(FAULTY.format(fault=fault))
    done = processes.run(
        *TPU,
        "--model=mlp",
        "--tpu_topology=v5e:2x2",
        f"--model_dir={tmp_path}",
        *shape,
        program=str(program),
        env={"PYTHONPATH": str(processes.ROOT)},
    )
    assert done.returncode == 1
    (line,) = lines(done)
    assert line.startswith("train.py: rehearsal: ")
    assert words in line
