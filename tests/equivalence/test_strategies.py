"""The same numbers on every strategy, from the command line's own `run`.

The runs on 1, 2 and 4 replicas share this process; two workers are two
processes. Accumulating 20 steps in float32 leaves the losses equal to 1e-6 or
so; 1e-5 relative is asked for.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import train
from data import DataConfig
from flags.command_line import Configs
from model import ModelConfig
from strategies import StrategyConfig
from tests import processes
from training import RunConfig
from training import TrainConfig

# The matrix compares the same places in ten steps; these are twenty, and whole
# command lines.
pytestmark = pytest.mark.slow

FOUR = tuple(f"cpu:{index}" for index in range(4))
PLACES = {
    "one_device": StrategyConfig(),
    "mirrored-2": StrategyConfig(strategy="mirrored", devices=FOUR[:2]),
    "mirrored-4": StrategyConfig(strategy="mirrored", devices=FOUR),
}
OTHERS = ["mirrored-2", "mirrored-4", "workers-2"]
OPTIMIZERS = ["sgd", "adam"]


def _run(place: str, folder: Path, optimizer: str) -> Path:
    model_dir = folder / f"{place}-{optimizer}"
    if place == "workers-2":
        done = processes.run_workers(
            2,
            "--strategy=multi_worker_mirrored",
            f"--model_dir={model_dir}",
            "--seed=7",
            "--train_steps=20",
            "--steps_per_loop=1",
            "--model=cnn",
            "--global_batch_size=64",
            f"--optimizer={optimizer}",
        )
        for worker in done:
            assert worker.returncode == 0, worker.stderr
        return model_dir
    train.run(
        Configs(
            RunConfig(model_dir=str(model_dir), seed=7),
            PLACES[place],
            DataConfig(),
            ModelConfig(model="cnn"),
            TrainConfig(
                train_steps=20,
                steps_per_loop=1,
                optimizer=optimizer,
                callbacks=(),
            ),
        )
    )
    return model_dir


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[tuple[str, str], Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        (place, optimizer): _run(place, folder, optimizer)
        for optimizer in OPTIMIZERS
        for place in [*PLACES, "workers-2"]
    }


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("place", OTHERS)
def test_every_loss_equals_one_devices(runs, place, optimizer) -> None:
    expected = processes.losses(runs["one_device", optimizer])
    assert len(expected) == 20
    # Otherwise the comparison would mean nothing.
    assert expected[-1] < 0.95 * expected[0]
    received = processes.losses(runs[place, optimizer])
    np.testing.assert_allclose(received, expected, rtol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("place", OTHERS)
def test_the_evaluation_equals_one_devices(runs, place, optimizer) -> None:
    (one,) = processes.read_metrics(runs["one_device", optimizer], "eval")
    (other,) = processes.read_metrics(runs[place, optimizer], "eval")
    assert other["examples"] == one["examples"] == 359
    assert other["accuracy"] == one["accuracy"]
    assert other["loss"] == pytest.approx(one["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("place", "replicas", "workers"),
    [
        ("one_device", 1, 1),
        ("mirrored-2", 2, 1),
        ("mirrored-4", 4, 1),
        ("workers-2", 2, 2),
    ],
)
def test_the_record_says_on_what_it_ran(runs, place, replicas, workers) -> None:
    content = json.loads((runs[place, "sgd"] / "run.json").read_text())
    assert content["strategy"]["replicas"] == replicas
    assert content["strategy"]["workers"] == workers
    assert content["batch"] == {"global": 64, "per_replica": 64 // replicas}


@pytest.fixture(scope="module")
def evaluations(runs) -> dict[str, dict[str, float]]:
    """One trained model, evaluated in batches that do not divide the set."""
    model_dir = runs["one_device", "adam"]
    found = {
        place: train.run(
            Configs(
                RunConfig(mode="evaluate", model_dir=str(model_dir), seed=7),
                strategy,
                DataConfig(global_batch_size=48),
                ModelConfig(model="cnn"),
            )
        )
        for place, strategy in PLACES.items()
    }
    done = processes.run_workers(
        2,
        "--strategy=multi_worker_mirrored",
        "--mode=evaluate",
        f"--model_dir={model_dir}",
        "--model=cnn",
        "--global_batch_size=48",
    )
    for index, worker in enumerate(done):
        assert worker.returncode == 0, worker.stderr
        (line,) = (
            line
            for line in worker.stdout.splitlines()
            if line.startswith("Evaluation at step 20: ")
        )
        words = line.partition(": ")[2].split(", ")
        found[f"worker {index}"] = {
            name: float(value)
            for name, value in (word.split() for word in words)
        }
    return found


@pytest.mark.parametrize(
    "place", ["mirrored-2", "mirrored-4", "worker 0", "worker 1"]
)
def test_an_uneven_evaluation_is_exact(evaluations, place) -> None:
    one, other = evaluations["one_device"], evaluations[place]
    assert other["examples"] == one["examples"] == 359
    assert other["accuracy"] == pytest.approx(one["accuracy"], abs=1e-6)
    assert other["loss"] == pytest.approx(one["loss"], abs=1e-6)
