"""A run goes on with another number of replicas or workers."""

from pathlib import Path

import numpy as np
import pytest

from tests import processes

FLAGS = ("--model=mlp", "--steps_per_loop=1", "--eval_every_steps=0")
ONE = ("--strategy=one_device",)
TWO = ("--strategy=mirrored", "--devices=cpu:0,cpu:1")
FOUR = ("--strategy=mirrored", "--devices=cpu:0,cpu:1,cpu:2,cpu:3")
WORKERS = ("--strategy=multi_worker_mirrored",)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    folder = tmp_path_factory.mktemp("straight")
    flags = [*FLAGS, *ONE, "--train_steps=20", f"--model_dir={folder}"]
    assert processes.run(*flags).returncode == 0
    return list(processes.losses(folder))


@pytest.mark.parametrize(
    "places",
    [
        pytest.param((ONE, TWO, FOUR, ONE), id="replicas"),
        pytest.param((ONE, WORKERS), id="workers", marks=pytest.mark.slow),
    ],
)
def test_losses_are_those_of_one_device(
    tmp_path: Path, straight: list[float], places: tuple[tuple[str, ...], ...]
) -> None:
    for i, place in enumerate(places):
        end = 20 * (i + 1) // len(places)
        flags = [*FLAGS, f"--train_steps={end}", f"--model_dir={tmp_path}"]
        count = 2 if place == WORKERS else 1
        if count == 2:
            done = processes.run_workers(2, *flags, *place)
        else:
            done = [processes.run(*flags, *place)]
        for process in done:
            assert process.returncode == 0, process.stderr
    np.testing.assert_allclose(
        processes.losses(tmp_path), straight, rtol=0, atol=1e-5
    )
