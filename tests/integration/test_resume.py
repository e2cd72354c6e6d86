"""A killed run goes on as if nothing had happened."""

import signal
import time
from pathlib import Path

import pytest

from tests import processes

FLAGS = (
    "--train_steps=80",
    "--steps_per_loop=1",
    "--eval_every_steps=40",
    "--checkpoint_every_steps=40",
    "--seed=3",
    "--model=cnn",
    "--learning_rate=0.01",
)


def _kill_after(step: int, folder: Path, *flags: str) -> None:
    """Kills a run after `step`, once there is a checkpoint."""
    process = processes.start(*flags)
    processes.wait_for(process, f"step {step}/")
    while not list(folder.glob("checkpoints/step-*.json")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("place", ["one_device", "mirrored"])
def test_losses_after_a_kill_are_bit_for_bit_those_of_no_kill(
    tmp_path, place
) -> None:
    flags = [*FLAGS, f"--strategy={place}"]
    if place == "mirrored":
        flags.append("--devices=cpu:0,cpu:1")
    straight = [*flags, f"--model_dir={tmp_path / 'straight'}"]
    killed = [*flags, f"--model_dir={tmp_path / 'killed'}"]
    assert processes.run(*straight).returncode == 0
    _kill_after(45, tmp_path / "killed", *killed)
    # What a kill in the middle of a line leaves.
    with (tmp_path / "killed" / "metrics.jsonl").open("a") as file:
        file.write('{"time": 17')
    done = processes.run(*killed)
    assert done.returncode == 0, done.stderr
    assert "Continuing at step 40 of 80" in done.stdout
    assert processes.losses(tmp_path / "killed") == processes.losses(
        tmp_path / "straight"
    )
    for split in ("train", "eval"):
        steps = [
            [line["step"] for line in processes.read_metrics(folder, split)]
            for folder in (tmp_path / "killed", tmp_path / "straight")
        ]
        assert steps[0] == steps[1]


def test_a_longer_run_continues_and_another_one_is_refused(tmp_path) -> None:
    flags = [f"--model_dir={tmp_path}", "--model=mlp"]
    assert processes.run(*flags, "--train_steps=5").returncode == 0
    longer = processes.run(*flags, "--train_steps=8")
    assert "Continuing at step 5 of 8" in longer.stdout
    again = processes.run(*flags, "--train_steps=8")
    assert "Already at step 8 of 8" in again.stdout
    assert again.returncode == 0
    other = processes.run(*flags, "--train_steps=9", "--seed=4")
    assert other.returncode == 2
    assert "--seed=4: the run to continue has 0" in other.stderr


def test_an_interrupted_run_says_so_and_can_go_on(tmp_path) -> None:
    flags = [*FLAGS, "--checkpoint_every_steps=70", f"--model_dir={tmp_path}"]
    process = processes.start(*flags)
    processes.wait_for(process, "step 10/")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=processes.DEADLINE_SECS)
    assert process.returncode == 42, err
    assert "interrupted; step " in err
    assert "Traceback" not in err
    done = processes.run(*flags)
    assert "Continuing at step " in done.stdout
    assert done.returncode == 0


def test_a_second_training_into_a_live_folder_is_refused(tmp_path) -> None:
    flags = [*FLAGS, "--train_steps=100000", f"--model_dir={tmp_path}"]
    first = processes.start(*flags)
    processes.wait_for(first, "step 1/")
    second = processes.run(*flags)
    assert second.returncode == 2, second.stderr
    assert f"process {first.pid} on " in second.stderr
    assert "is training into it; wait for its end" in second.stderr
    first.kill()
    first.communicate()
    # What a dead one has left is taken over.
    done = processes.run(*FLAGS, "--train_steps=5", f"--model_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
