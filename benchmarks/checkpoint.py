"""What do checkpoints cost while a model trains?

    python -m benchmarks.checkpoint --json=checkpoint.json

Trains in windows of a fixed length, in turn with one save at the start and
without; a window ends when its checkpoint is written. What one save costs is
then set against the interval between two: if the window with a save reaches
the part `r` of the speed without, the training keeps `1 - (1 - r) · window /
interval`. The stall is how long a call of `save` takes, beside the time until
all is written, for which a synchronous one would hold the training up.
"""

import itertools
import tempfile
import time
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks import _command
from benchmarks import _pairs
from data import DataConfig
from data.pipeline import distribute
from data.pipeline import prepare
from flags import registry
from model import ModelConfig
from training import TrainConfig
from training import checkpoint_writer
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib


class Contest(NamedTuple):
    """What is trained, and how often it is saved."""

    data: DataConfig
    model: ModelConfig
    steps: int
    """Steps of one compiled loop."""
    window: float
    """Seconds; long enough for one checkpoint to be written, and no longer:
    what else happens on the machine weighs as much as the window is long."""
    interval: float
    """Seconds between two checkpoints."""
    pairs: int
    """Windows with a save, and as many without."""


CONTESTS = {
    "default": Contest(DataConfig(), ModelConfig(), 10, 0.5, 5.0, 60),
    # 60 million parameters: with Adam 0.7 GB.
    "large": Contest(
        DataConfig(dataset="synthetic:shape=28x28x1,classes=10,examples=8192"),
        ModelConfig(model="mlp", model_options=("hidden=7400x7400",)),
        1,
        8.0,
        60.0,
        15,
    ),
}


def measure(contest: Contest) -> dict[str, float]:
    """Returns the part of the speed that is kept, and the stalls in ms."""
    strategy = tf.distribute.OneDeviceStrategy("cpu:0")
    train, variables = _build(strategy, contest)
    number = itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        writer = checkpoint_writer.Writer(strategy, folder, keep=1)

        def rate(saves: bool) -> float:
            done, start = 0, time.perf_counter()
            if saves:
                writer.save(variables, next(number))
            while time.perf_counter() - start < contest.window:
                train()
                done += contest.steps
            writer.wait()
            return done / (time.perf_counter() - start)

        _, bare, ratio = _pairs.compare(
            lambda: rate(True), lambda: rate(False), contest.pairs
        )
        stalls = []
        for _ in range(contest.pairs):
            train()  # moves the variables away from the last snapshot
            start = time.perf_counter()
            writer.save(variables, next(number))
            stall = time.perf_counter() - start
            writer.wait()
            stalls.append((stall, time.perf_counter() - start))
    share = contest.window / contest.interval
    kept = {
        f"vs_none{key}": 1 - (1 - value) * share
        for key, value in zip(("", "_low", "_high"), ratio, strict=True)
    }
    stall, synchronous = (1000 * np.median(stalls, axis=0)).tolist()
    return kept | {
        "steps_per_sec": bare,
        "stall_ms": stall,
        "synchronous_ms": synchronous,
    }


def _build(
    strategy: tf.distribute.Strategy, contest: Contest
) -> tuple[Callable[[], Any], dict[str, tf.Variable]]:
    """Returns what trains for one loop, and all it changes."""
    dataset = registry.load("data", contest.data.dataset, "dataset")
    model = registry.load("model", contest.model.model, "model")
    info = dataset.info(contest.data)
    spec = prepare.element_spec(dataset, contest.data)
    with strategy.scope():
        built = model.build(contest.model, spec, info.num_outputs)
        state = state_lib.create(built, TrainConfig())
    task = task_lib.resolve(model, info.task)
    batch_size = contest.data.global_batch_size
    loop = step_lib.make_train_loop(
        strategy, state, task, batch_size, TrainConfig()
    )
    iterator = iter(
        distribute.train_dataset(
            strategy, dataset, contest.data, seed=0, step=0
        )
    )
    count = tf.constant(contest.steps, tf.int64)
    return lambda: loop(iterator, count)["loss"].numpy(), state.variables()


def main() -> None:
    """Measures all contests, prints a table, writes JSON if asked to."""
    parser = _command.parser(__doc__)
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    print(f"{'model':<8} {'every':>6} {'kept':>6}  90 %         stall  sync.")
    for name, contest in CONTESTS.items():
        found = measure(contest)
        print(
            f"{name:<8} {contest.interval:>4.0f} s {found['vs_none']:>6.3f}  "
            f"{found['vs_none_low']:.3f}-{found['vs_none_high']:.3f}  "
            f"{found['stall_ms']:>4.0f} ms  {found['synchronous_ms']:.0f} ms",
            flush=True,
        )
        figures |= {
            f"checkpoint.{name}.{key}": value for key, value in found.items()
        }
    _command.write(arguments.json, figures)


if __name__ == "__main__":
    main()
