"""Python functions called from a graph, and how many run at a time.

An operation with state keeps its order: `py_function` always, `numpy_function`
unless told that it has none. So the iterations of a loop call one after the
other, whatever its parallel iterations; calls of `Dataset.map` are functions
of their own and wait for nobody.
"""

import functools
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from examples import _timing

PARALLEL_ITERATIONS = (1, 10)


def make_callback(work: Callable[[], Any]) -> tuple[Callable, list[int]]:
    """Returns a Python function of a number, and a list that it fills.

    Each call adds how many calls are active at its start, itself included.
    """
    active: set[int] = set()
    counts: list[int] = []

    def callback(number: Any) -> np.ndarray:
        active.add(threading.get_ident())
        counts.append(len(active))
        work()
        active.remove(threading.get_ident())
        return 2.0 * np.asarray(number) + np.float32(1.0)

    return callback, counts


def map_in_graph(
    function: Callable, numbers: tf.Tensor, parallel: int
) -> Callable[[], tf.Tensor]:
    """Returns a traced `map_fn`."""
    return tf.function(
        lambda: tf.map_fn(function, numbers, parallel_iterations=parallel),
        autograph=False,
    )


def map_in_dataset(
    function: Callable, numbers: tf.Tensor, parallel: int
) -> Callable[[], tf.Tensor]:
    """Returns a `Dataset.map`, gathered into one tensor."""
    dataset = tf.data.Dataset.from_tensor_slices(numbers)
    dataset = dataset.map(function, num_parallel_calls=parallel)
    return lambda: tf.stack(list(dataset))


def make_ways(
    count: int, milliseconds: float
) -> dict[str, tuple[Callable[[], tf.Tensor], list[int]]]:
    """Returns ways to call Python, each with its list of active calls.

    Args:
        count: Calls of each way.
        milliseconds: That a call takes, roughly if it computes.
    """
    numbers = tf.range(count, dtype="float32")

    def wait() -> None:
        time.sleep(milliseconds / 1e3)

    def compute() -> None:
        sum(range(int(40_000 * milliseconds)))

    def stateless(callback: Callable, inputs: list, dtype: Any) -> tf.Tensor:
        return tf.numpy_function(callback, inputs, dtype, stateful=False)

    kinds = {
        "py_function, waits": (map_in_graph, tf.py_function, wait),
        "numpy_function, waits": (map_in_graph, tf.numpy_function, wait),
        "stateless, waits": (map_in_graph, stateless, wait),
        "stateless, computes": (map_in_graph, stateless, compute),
        "Dataset.map, waits": (map_in_dataset, tf.py_function, wait),
    }
    ways = {}
    for (kind, (run, operation, work)), parallel in itertools.product(
        kinds.items(), PARALLEL_ITERATIONS
    ):
        callback, counts = make_callback(work)
        call = functools.partial(_call, operation, callback)
        ways[f"{kind}, {parallel}"] = run(call, numbers, parallel), counts
    return ways


def measure(
    count: int, milliseconds: float, rounds: int
) -> tuple[dict[str, float], dict[str, int]]:
    """Returns each way's median milliseconds, and most active calls."""
    ways = make_ways(count, milliseconds)
    runs = {way: run for way, (run, _) in ways.items()}
    times = _timing.compare(runs, rounds)
    return times, {way: max(counts) for way, (_, counts) in ways.items()}


def _call(operation: Callable, callback: Callable, x: tf.Tensor) -> tf.Tensor:
    return operation(callback, [x], tf.float32)
