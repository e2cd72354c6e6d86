"""A long run neither traces again nor grows."""

import pytest

import train
from data import DataConfig
from flags.command_line import Configs
from model import ModelConfig
from tests import processes
from training import RunConfig
from training import TrainConfig
from training import inner_loop

# Prints the highest resident memory, in MB, up to step 200 and step 2,000.
PROGRAM = """
import sys
import resource
import keras
import train
from data import DataConfig
from flags.command_line import Configs
from model import ModelConfig
from training import RunConfig, TrainConfig, callbacks

class Memory(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs):
        if batch in (200, 2000):
            usage = resource.getrusage(resource.RUSAGE_SELF)
            print("MB", usage.ru_maxrss / 1024)

import training.callbacks.progress as progress
progress.make = lambda context: Memory()
train.run(Configs(
    run=RunConfig(model_dir=sys.argv[1]),
    data=DataConfig(global_batch_size=8),
    model=ModelConfig(model="mlp", model_options=("hidden=8",)),
    train=TrainConfig(train_steps=2000, steps_per_loop=1,
                      eval_every_steps=200, checkpoint_every_steps=200,
                      callbacks=("progress",)),
))
"""


def test_memory_stays_level(tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = processes.run(
        str(tmp_path / "run"),
        program=str(program),
        env={"PYTHONPATH": str(processes.ROOT)},
    )
    assert done.returncode == 0, done.stderr
    early, late = (
        float(line.split()[1])
        for line in done.stdout.splitlines()
        if line.startswith("MB ")
    )
    assert late - early < 20


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_whole_run_is_traced_once(
    tmp_path, monkeypatch, strategy_of, replicas
) -> None:
    """Three epochs with evaluations, checkpoints and loops of four lengths."""
    loops = []
    make_loop = inner_loop.make

    def spy(*args):
        loops.append(make_loop(*args))
        return loops[-1]

    monkeypatch.setattr(inner_loop, "make", spy)
    strategy = train.command_line.StrategyConfig(
        strategy="mirrored" if replicas > 1 else "one_device",
        devices=tuple(f"cpu:{index}" for index in range(replicas)),
    )
    train.run(
        Configs(
            RunConfig(model_dir=str(tmp_path)),
            strategy,
            DataConfig(global_batch_size=60),
            ModelConfig(model="mlp"),
            TrainConfig(
                train_steps=72,
                steps_per_loop=10,
                eval_every_steps=24,
                checkpoint_every_steps=15,
                callbacks=(),
            ),
        )
    )
    assert [loop.experimental_get_tracing_count() for loop in loops] == [1, 1]
