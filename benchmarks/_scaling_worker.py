"""A process of `scaling`: our training loop on cores of its own.

    python -m benchmarks._scaling_worker '{"model": "cnn", "cores": [0], …}'

Takes turns as `_turns` says.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from data import DataConfig
from flags import registry
from model import ModelConfig
from strategies import StrategyConfig
from training import TrainConfig


def main(argv: Sequence[str]) -> None:
    """Builds what the one argument describes, then serves turns.

    Its keys: `model`, `model_options`, `strategy`, `devices`, `compression`,
    `batch` (of all replicas), `examples` (in the dataset), `cores`.
    """
    spec = json.loads(argv[1])
    # Before TensorFlow counts the cores.
    os.sched_setaffinity(0, spec["cores"])
    train = _build(spec)
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        train(int(line))
        print("seconds", time.perf_counter() - start, flush=True)


def _build(spec: dict[str, Any]) -> Any:
    """Returns a function that trains for `n` steps."""
    strategy_config = StrategyConfig(
        strategy=spec["strategy"],
        devices=tuple(spec["devices"]),
        # Of an operation; how many run at once follows from the cores.
        intra_op_threads=1,
    )
    create = registry.load("strategies", spec["strategy"], "strategy").create
    strategy = create(strategy_config)

    from data import synthetic
    from data.pipeline import distribute
    from data.pipeline import prepare
    from training import inner_loop
    from training import state as state_lib
    from training import step as step_lib
    from training import task as task_lib

    data = DataConfig(
        dataset=f"synthetic:shape=28x28x1,classes=10,examples={spec['examples']}",
        global_batch_size=spec["batch"],
    )
    config = TrainConfig(
        optimizer="sgd",
        learning_rate=0.01,
        gradient_compression=spec["compression"],
    )
    model_config = ModelConfig(
        model=spec["model"], model_options=tuple(spec["model_options"])
    )
    model = registry.load("model", spec["model"], "model")
    info = synthetic.info(data)
    with strategy.scope():
        built = model.build(
            model_config,
            prepare.element_spec(synthetic, data),
            info.num_outputs,
        )
        state = state_lib.create(built, config)
    task = task_lib.resolve(model, info.task)
    loop = step_lib.make_train_loop(
        strategy, state, task, data.global_batch_size, config
    )
    batches = distribute.train_dataset(
        strategy, synthetic, data, seed=0, step=0
    )
    return inner_loop.make_train(
        loop, iter(batches), state, data.global_batch_size
    )


if __name__ == "__main__":
    main(sys.argv)
