"""A signal to any worker: all save the same step and can go on from it."""

import re
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import processes

# One inner loop for the whole run: only the compiled loop can hear a signal.
WORKERS = "--strategy=multi_worker_mirrored"
FLAGS = (
    "--model=mlp",
    "--train_steps=40000",
    "--steps_per_loop=20000",
    "--eval_every_steps=0",
    "--checkpoint_every_steps=0",
    "--global_batch_size=8",
)
LONG = ("--steps_per_loop=2000",)


def saved_step(err: str) -> int:
    match = re.search(r"interrupted; step (\d+) of 40000 is saved", err)
    assert match, err
    return int(match[1])


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
)
def test_one_process_saves_in_the_midst_of_a_loop(
    tmp_path: Path, number: signal.Signals
) -> None:
    flags = [*FLAGS, *LONG, f"--model_dir={tmp_path}"]
    process = processes.start(*flags)
    processes.wait_for(process, "step 2000/")
    process.send_signal(number)
    done = processes.finish(process)
    assert done.returncode == 42, done.stderr
    assert f"{number.name}: saving after the step that runs" in done.stderr
    assert "Traceback" not in done.stderr
    step = saved_step(done.stderr)
    assert step % 2000  # within a loop: very likely, and no other is saved
    assert (tmp_path / "checkpoints" / f"step-{step}.index").exists()
    last = processes.read_metrics(tmp_path, "train")[-1]
    assert last["step"] == step


@pytest.mark.parametrize(
    "target",
    [pytest.param(0, id="chief", marks=pytest.mark.slow), 1],
)
def test_two_workers_agree_on_a_step(tmp_path: Path, target: int) -> None:
    flags = [*FLAGS, *LONG, f"--model_dir={tmp_path}"]
    workers = processes.start_workers(2, WORKERS, *flags)
    processes.wait_for(workers[0], "step 2000/")
    workers[target].send_signal(signal.SIGTERM)
    done = [processes.finish(worker) for worker in workers]
    assert [worker.returncode for worker in done] == [42, 42], done
    steps = {saved_step(worker.stderr) for worker in done}
    assert len(steps) == 1
    (step,) = steps
    again = processes.start_workers(
        2, WORKERS, *flags, f"--train_steps={step + 3}"
    )
    done = [processes.finish(worker) for worker in again]
    assert [worker.returncode for worker in done] == [0, 0], done
    assert f"Continuing at step {step} of {step + 3}" in done[0].stdout


def test_interrupted_twice_gives_the_bits_of_no_interruption(
    tmp_path: Path,
) -> None:
    flags = [*FLAGS, "--train_steps=6000", "--steps_per_loop=1500"]
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    done = processes.run(*flags, f"--model_dir={straight}")
    assert done.returncode == 0, done.stderr
    for words in ("step 1500/", "step 4500/"):
        process = processes.start(*flags, f"--model_dir={broken}")
        processes.wait_for(process, words)
        process.send_signal(signal.SIGTERM)
        assert processes.finish(process).returncode == 42
    assert processes.run(*flags, f"--model_dir={broken}").returncode == 0
    readers = [
        tf.train.load_checkpoint(str(folder / "checkpoints" / "step-6000"))
        for folder in (straight, broken)
    ]
    shapes = readers[0].get_variable_to_shape_map()
    assert shapes == readers[1].get_variable_to_shape_map()
    for name in shapes:
        values = [reader.get_tensor(name) for reader in readers]
        if isinstance(values[0], np.ndarray):
            np.testing.assert_array_equal(*values)
