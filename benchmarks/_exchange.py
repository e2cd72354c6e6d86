"""A worker of `communication`: exchanges the gradients of a model, no more.

    TF_CONFIG=… python -m benchmarks._exchange '{"shapes": [[10]], …}'

prints `figures` and JSON: for each way of exchanging, the seconds of one
exchange in each measurement, and the bytes it sent over loopback.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from strategies import StrategyConfig
from strategies import multi_worker_mirrored
from strategies.cluster import watch
from training import gradients as gradients_lib

Way = Callable[[list[tf.Tensor]], list[Any]]


def main(argv: Sequence[str]) -> None:
    """Measures what the one argument describes.

    Its keys: `shapes` of the gradients, `pairs`, `calls` in one measurement,
    `cores`. The workers take turns at the same ways together.
    """
    spec = json.loads(argv[1])
    os.sched_setaffinity(0, spec["cores"])
    strategy = multi_worker_mirrored.create(
        StrategyConfig(
            strategy="multi_worker_mirrored",
            intra_op_threads=1,
        )
    )
    with strategy.scope():
        optimizer = keras.optimizers.SGD()
        gradients = [tf.Variable(tf.ones(shape)) for shape in spec["shapes"]]

    ways: dict[str, Way] = {
        # Not public: what its optimizer does before it updates.
        "keras": lambda values: [
            value
            for value, _ in optimizer._all_reduce_sum_gradients(
                [(value, None) for value in values]
            )
        ],
        "separate": lambda values: [
            gradients_lib.sum_over_replicas([value])[0] for value in values
        ],
        "float32": lambda values: gradients_lib.exchange(values, [])[0],
        "bfloat16": lambda values: gradients_lib.exchange(
            values, [], "bfloat16"
        )[0],
    }
    runs = {
        name: _repeat(strategy, way, gradients, spec["calls"])
        for name, way in ways.items()
    }
    sent = {name: _bytes_of(run) / spec["calls"] for name, run in runs.items()}
    times = [
        [_seconds(run) / spec["calls"] for run in runs.values()]
        for _ in range(spec["pairs"])
    ]
    columns = zip(runs, zip(*times, strict=True), strict=True)
    figures = {
        name: {"seconds": column, "bytes": sent[name]}
        for name, column in columns
    }
    print("figures", json.dumps(figures), flush=True)
    watch.leave(0)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run().numpy()
    return time.perf_counter() - start


def _repeat(
    strategy: tf.distribute.Strategy,
    way: Way,
    gradients: Sequence[tf.Variable],
    calls: int,
) -> Callable[[], Any]:
    """Returns a compiled loop of exchanges, one after the other."""

    def replica_fn() -> tf.Tensor:
        summed = way([tf.identity(variable) for variable in gradients])
        # One number of each, so that none is left out.
        return tf.add_n([tf.reshape(value, [-1])[0] for value in summed])

    def body(done: tf.Tensor, _: tf.Tensor) -> list[tf.Tensor]:
        result = strategy.run(replica_fn)
        return [done + 1, strategy.experimental_local_results(result)[0]]

    return tf.function(
        lambda: tf.while_loop(
            lambda done, _: done < calls,
            body,
            [0, 0.0],
            parallel_iterations=1,
        )[1],
        autograph=False,
    )


def _bytes_of(run: Callable[[], Any]) -> float:
    """Returns what one worker sends over loopback meanwhile, headers too."""
    run().numpy()  # traces, and meets the other worker
    before = _sent()
    run().numpy()
    # Of two workers, each as much as the other.
    return (_sent() - before) / 2


def _sent() -> int:
    lines = Path("/proc/net/dev").read_text().splitlines()
    (loopback,) = (line for line in lines if line.strip().startswith("lo:"))
    return int(loopback.split(":")[1].split()[8])


if __name__ == "__main__":
    main(sys.argv)
