import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data.pipeline import distribute
from data.pipeline import guard
from data.pipeline import order
from data.pipeline import prepare
from errors import RequestError
from errors import RunError
from tests.data.pipeline import datasets

StrategyOf = Callable[[int], tf.distribute.Strategy]
REPLICAS = pytest.mark.parametrize("num_replicas", [1, 2, 4])


def _config(size: int) -> DataConfig:
    return DataConfig(dataset="mine", global_batch_size=size)


def _rows(strategy: tf.distribute.Strategy, value: Any) -> np.ndarray:
    """Puts the replicas' rows back: row i is from replica i mod R."""
    parts = strategy.experimental_local_results(value)
    return np.stack([part.numpy() for part in parts], 1).reshape(-1)


@REPLICAS
@pytest.mark.parametrize("kind", ["arrays", "example", "source"])
def test_training_batches_are_the_same_on_any_number_of_replicas(
    num_replicas: int, kind: str, strategy_of: StrategyOf
) -> None:
    strategy, module = strategy_of(num_replicas), datasets.make(kind, 18)

    dataset = distribute.train_dataset(
        strategy, module, _config(8), seed=5, step=2
    )

    one = prepare.train_dataset(
        module, _config(8), tf.distribute.InputContext(), seed=5, step=2
    )
    iterator = iter(dataset)
    for _, labels, weights in one.take(5):
        received = next(iterator)
        np.testing.assert_array_equal(_rows(strategy, received[1]), labels)
        np.testing.assert_array_equal(_rows(strategy, received[2]), weights)


@REPLICAS
def test_evaluations_follow_each_other_in_one_iterator(
    num_replicas: int, strategy_of: StrategyOf
) -> None:
    strategy, module = strategy_of(num_replicas), datasets.make("source", 1, 9)
    config = _config(4)

    iterator = iter(distribute.eval_dataset(strategy, module, config))

    for _ in range(2):
        seen = []
        for _ in range(prepare.num_eval_steps(module, config)):
            _, labels, weights = next(iterator)
            labels, weights = (_rows(strategy, x) for x in (labels, weights))
            seen += list(labels[weights == 1])
        assert seen == list(range(9))


@REPLICAS
def test_per_replica_shapes_are_static_in_a_compiled_loop(
    num_replicas: int, strategy_of: StrategyOf
) -> None:
    strategy, module = strategy_of(num_replicas), datasets.make("arrays", 9, 9)
    shapes = []
    iterators = [
        iter(
            distribute.train_dataset(
                strategy, module, _config(4), seed=0, step=0
            )
        ),
        iter(distribute.eval_dataset(strategy, module, _config(4))),
    ]

    @tf.function(autograph=False)
    def step(iterator: Any) -> None:
        strategy.run(
            lambda features, *_: shapes.append(features.shape),
            args=next(iterator),
        )

    for iterator in iterators:
        step(iterator)

    assert set(shapes) == {tf.TensorShape([4 // num_replicas, 2])}


@REPLICAS
@pytest.mark.parametrize("kind", ["example", "source"])
def test_a_compiled_loop_that_meets_a_bad_example_names_it(
    num_replicas: int, kind: str, strategy_of: StrategyOf
) -> None:
    strategy, config = strategy_of(num_replicas), _config(4)
    module = datasets.make(kind, 16, 16, bad=[11])
    find_bad = functools.partial(distribute.find_bad, strategy, module, config)
    step = tf.Variable(0, dtype=tf.int64)

    @tf.function(autograph=False)
    def loop(iterator: Any, num_steps: tf.Tensor) -> None:
        def body(done: tf.Tensor) -> tf.Tensor:
            strategy.run(lambda *_: None, args=next(iterator))
            step.assign_add(1)
            return done + 1

        tf.while_loop(
            lambda done: done < num_steps,
            body,
            [tf.zeros_like(num_steps)],
            parallel_iterations=1,
        )

    def run(dataset: Any, num_steps: int) -> dict[str, float]:
        loop(iter(dataset), tf.constant(num_steps))
        return {}

    train = distribute.train_dataset(strategy, module, config, seed=5, step=0)
    with pytest.raises(RunError, match=r"read e\w+ 11 of .*split train: Str"):
        guard.guard_train(
            functools.partial(run, train),
            find_bad,
            config,
            seed=5,
            step=lambda: int(step.numpy()),
        )(4)
    held_out = distribute.eval_dataset(strategy, module, config)
    with pytest.raises(RunError, match=r"read e\w+ 11 of .*split eval: Str"):
        guard.guard_eval(functools.partial(run, held_out, 4), find_bad)()


def test_a_worker_without_bad_examples_finds_none(
    strategy_of: StrategyOf,
) -> None:
    module = datasets.make("source", 16)

    assert "" == distribute.find_bad(
        strategy_of(2), module, _config(4), "train", seed=5, steps=range(4)
    )


@pytest.mark.parametrize(
    ("size", "sizes"), [(66, "64 or 68"), (3, "use 4.")], ids=["near", "below"]
)
def test_rejects_a_batch_that_the_replicas_do_not_divide(
    size: int, sizes: str, strategy_of: StrategyOf
) -> None:
    strategy, config = strategy_of(4), _config(size)
    module = datasets.make("arrays", 9)

    for call in (
        lambda: distribute.check(strategy, config),
        lambda: distribute.eval_dataset(strategy, module, config),
        lambda: distribute.train_dataset(
            strategy, module, config, seed=0, step=0
        ),
    ):
        with pytest.raises(
            RequestError, match=f"--global_batch_size={size}.*4 repl.*{sizes}"
        ):
            call()


_WORKER = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
from data import DataConfig
from data.pipeline import distribute
from data.pipeline import guard
from data.pipeline import prepare
from tests.data.pipeline import datasets

config = DataConfig(dataset="mine", global_batch_size=8)
for kind in ("arrays", "source"):
    module = datasets.make(kind, 18, 11)
    train = distribute.train_dataset(strategy, module, config, seed=5, step=2)
    held_out = distribute.eval_dataset(strategy, module, config)
    for dataset, steps in ((train, 5), (held_out, 2)):
        iterator = iter(dataset)
        shapes = []

        @tf.function(autograph=False)
        def read():
            batch = next(iterator)
            strategy.run(lambda x, *_: shapes.append(x.shape), args=batch)
            return [strategy.experimental_local_results(x)[0] for x in batch]

        for _ in range(steps):
            features, labels, weights = read()
            print("rows", *labels.numpy(), *weights.numpy().astype(int))
        assert shapes == [(4, 2)], shapes
"""


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def _run_workers() -> list[np.ndarray]:
    addresses = [f"localhost:{_free_port()}" for _ in range(2)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            env=os.environ
            | {
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": addresses},
                        "task": {"type": "worker", "index": index},
                    }
                )
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    outputs = [worker.communicate(timeout=120)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    return [
        np.array(
            [
                [int(word) for word in line.split()[1:]]
                for line in output.splitlines()
                if line.startswith("rows ")
            ]
        ).reshape(2, 7, 2, 4)
        for output in outputs
    ]


def test_two_processes_share_the_batches_with_static_shapes() -> None:
    workers = _run_workers()

    # [kind, step, labels or weights, row]
    rows = np.stack(workers, axis=-1).reshape(2, 7, 2, 8)
    indices = order.train_indices(18, 8, seed=5, step=2).take(5)
    np.testing.assert_array_equal(
        rows[0, :5, 0], list(indices.as_numpy_iterator())
    )
    one = prepare.train_dataset(
        datasets.make("source", 18),
        _config(8),
        tf.distribute.InputContext(),
        seed=5,
        step=2,
    )
    np.testing.assert_array_equal(
        rows[1, :5, 0], [labels for _, labels, _ in one.take(5)]
    )
    for kind in range(2):
        labels, weights = rows[kind, 5:, 0], rows[kind, 5:, 1]
        np.testing.assert_array_equal(labels[weights == 1], range(11))
