"""How much of the bare step's speed does the training loop keep?

    python -m benchmarks.loop --json=loop.json

The bare step is the same compiled step with the same metrics, fed from one
batch that never changes; the difference is input, order and bookkeeping.
"""

import argparse
import json
import time
from collections.abc import Callable

import tensorflow as tf

from benchmarks import _pairs
from data import DataConfig
from data import synthetic
from data.pipeline import distribute
from data.pipeline import prepare
from flags import registry
from model import ModelConfig
from training import TrainConfig
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib
from training.inner_loop import Loop

# Name → --model, --model_options, steps of one compiled loop.
CONTESTS = {
    "mlp": ("mlp", ("hidden=128",), 1000),
    "cnn": ("cnn", (), 100),
    "equilibrium": ("equilibrium", (), 100),
}


def measure(name: str, seconds: float, pairs: int) -> dict[str, float]:
    """Returns steps/s of our loop and of the bare one, and their ratio."""
    model_name, options, steps = CONTESTS[name]
    data = DataConfig(
        dataset="synthetic:shape=28x28x1,classes=10,examples=8192",
        global_batch_size=128,
    )
    strategy = tf.distribute.OneDeviceStrategy("cpu:0")
    model = registry.load("model", model_name, "model")
    info = synthetic.info(data)
    spec = prepare.element_spec(synthetic, data)
    config = ModelConfig(model=model_name, model_options=options)
    with strategy.scope():
        built = model.build(config, spec, info.num_outputs)
        state = state_lib.create(built, TrainConfig())
    task = task_lib.resolve(model, info.task)
    loop = step_lib.make_train_loop(
        strategy, state, task, data.global_batch_size, TrainConfig()
    )
    dataset = distribute.train_dataset(
        strategy, synthetic, data, seed=0, step=0
    )
    constant = tf.data.Dataset.from_tensors(next(iter(dataset))).repeat()
    ours, bare, ratio = _pairs.compare(
        _rate(loop, iter(dataset), steps, seconds),
        _rate(loop, iter(constant), steps, seconds),
        pairs,
    )
    return {
        "steps_per_sec": ours,
        "bare_steps_per_sec": bare,
        "vs_bare": ratio.median,
        "vs_bare_low": ratio.low,
        "vs_bare_high": ratio.high,
    }


def _rate(
    loop: Loop, iterator: object, steps: int, seconds: float
) -> Callable[[], float]:
    count = tf.constant(steps, tf.int64)

    def rate() -> float:
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            loop(iterator, count)["loss"].numpy()
            done += steps
        return done / (time.perf_counter() - start)

    return rate


def main() -> None:
    """Measures all contests, prints a table, writes JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    print(f"{'model':<12} {'steps/s':>9} {'bare':>9} {'ratio':>6}  90 %")
    for name in CONTESTS:
        found = measure(name, arguments.seconds, arguments.pairs)
        print(
            f"{name:<12} {found['steps_per_sec']:>9.1f} "
            f"{found['bare_steps_per_sec']:>9.1f} {found['vs_bare']:>6.3f}  "
            f"{found['vs_bare_low']:.3f}-{found['vs_bare_high']:.3f}",
            flush=True,
        )
        figures |= {f"loop.{name}.{key}": value for key, value in found.items()}
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
