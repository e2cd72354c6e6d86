"""Why does my `tf.while_loop` not get faster with `parallel_iterations`?

It says how many iterations of a traced loop may be under way at once. They
overlap only if a core is free and they do not wait for each other, as they do
if each needs what the one before made, such as the vector it updates. Where
each does little, the loop itself takes the time: do more in an iteration, or
all in one operation. Eagerly a loop is one of Python, and XLA compiles it to a
sequential one: neither looks at `parallel_iterations`. Several devices are
used by a strategy, or by naming them.

    python -m examples.while_loop_parallelism

Shapes: `N` elements, `T` products, `K` values of a vector.
"""

import argparse
import functools
import itertools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from examples import _timing
from strategies import StrategyConfig
from strategies import mirrored

# Way, parallel iterations (0: no loop, or always 10), mode.
Key = tuple[str, int, str]
Contestants = dict[Key, Callable[[], tf.Tensor]]

MODES = ("eager", "graph", "XLA")
PARALLEL_ITERATIONS = (1, 10, 32)
SIZES = {"batch": 100, "batches": 5, "share": 16, "size": 512, "rounds": 4}
ONE, BATCH, ALL = "one element at a time", "batches", "all elements at once"
CHAINED, EACH, BATCHED = "chained products", "independent products", "one op"
ALONE, STRATEGY, BY_HAND = "one device", "MirroredStrategy", "tf.device, add_n"


def in_mode(mode: str, function: Callable) -> Callable:
    """Returns `function` as it is, traced, or compiled by XLA."""
    if mode == "eager":
        return function
    return tf.function(function, autograph=False, jit_compile=mode == "XLA")


def update(values: tf.Tensor) -> tf.Tensor:
    """Returns what each of the elements `[...]` is to become."""
    return 2.0 * tf.sqrt(values) + 1.0


def loop(count: int, body: Callable, start: Any, parallel: int) -> Any:
    """Returns the last value of `value = body(i, value)` for all i."""
    return tf.while_loop(
        lambda i, _: i < count,
        lambda i, value: (i + 1, body(i, value)),
        (tf.constant(0), start),
        parallel_iterations=parallel,
    )[1]


def scatter(values: tf.Tensor, batch: int, parallel: int) -> tf.Tensor:
    """Returns `update(values)` `[N]`, `batch` elements an iteration."""

    def body(i: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
        indices = i * batch + tf.range(batch)
        new = update(tf.gather(values, indices))
        # Waits for the vector that the iteration before this one made.
        return tf.tensor_scatter_nd_update(vector, indices[:, None], new)

    count = values.shape[0] // batch
    return loop(count, body, tf.zeros_like(values), parallel)


def multiply_each(
    matrices: tf.Tensor, vectors: tf.Tensor, parallel: int
) -> tf.Tensor:
    """Returns `A[t] @ x[t]` for all t, `[T, K]`: each waits for nothing."""
    count = vectors.shape[0]

    def body(t: tf.Tensor, products: tf.TensorArray) -> tf.TensorArray:
        return products.write(t, tf.linalg.matvec(matrices[t], vectors[t]))

    products = tf.TensorArray(tf.float32, count)
    return loop(count, body, products, parallel).stack()


def multiply_chain(
    matrices: tf.Tensor, vectors: tf.Tensor, parallel: int
) -> tf.Tensor:
    """Returns h `[K]` after `h = A[t] @ h` for all t, from `vectors[0]`."""

    def body(t: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(matrices[t], h)

    return loop(matrices.shape[0], body, vectors[0], parallel)


def sum_products(matrices: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """Returns the sum of all `A[t] @ x[t]`, `[K]`: one device's share."""
    return tf.reduce_sum(multiply_each(matrices, vectors, 10), axis=0)


def in_modes(
    way: str,
    function: Callable[[int], tf.Tensor],
    parallels: Sequence[int] = PARALLEL_ITERATIONS,
) -> Contestants:
    """Returns a contestant for each parallel iterations and mode."""
    return {
        (way, p, mode): in_mode(mode, functools.partial(function, p))
        for p in parallels
        for mode in MODES
    }


def over_devices(
    strategy: tf.distribute.Strategy, *tensors: tf.Tensor
) -> Contestants:
    """Returns three ways to sum products, two of them on two devices.

    XLA compiles each share; the whole would become one program on one device.
    """
    shares = list(zip(*(tf.split(x, 2) for x in tensors), strict=True))
    per_replica = strategy.experimental_distribute_values_from_function(
        lambda context: shares[context.replica_id_in_sync_group]
    )

    def run_and_reduce(work: Callable) -> tf.Tensor:
        # Given `work` itself, `run` would compile all replicas as one program.
        sums = strategy.run(lambda *share: work(*share), args=per_replica)
        return strategy.reduce("SUM", sums, axis=None)

    def place_by_hand(work: Callable) -> tf.Tensor:
        sums = []
        for i, share in enumerate(shares):
            with tf.device(f"cpu:{i}"):
                sums.append(work(*share))
        with tf.device("cpu:0"):
            return tf.add_n(sums)

    ways = {
        ALONE: lambda work: work(*tensors),
        STRATEGY: run_and_reduce,
        BY_HAND: place_by_hand,
    }
    return {
        (way, 0, mode): in_mode(
            mode.replace("XLA", "graph"),
            functools.partial(function, in_mode(mode, sum_products)),
        )
        for way, function in ways.items()
        for mode in MODES
    }


def measure(
    *, batch: int, batches: int, share: int, size: int, rounds: int
) -> tuple[dict[Key, float], dict[Key, np.ndarray]]:
    """Runs every way in every mode.

    Args:
        batch: Elements an iteration of the loop over batches.
        batches: How many of them make the vector.
        share: Products of each of the two devices.
        size: `K`.
        rounds: How often to time eagerly; otherwise ten times as often.

    Returns:
        The median milliseconds of each contestant, and its result.
    """
    # The first call of TensorFlow: it splits the CPU into two devices.
    strategy = mirrored.create(
        StrategyConfig(strategy="mirrored", devices=("cpu:0", "cpu:1"))
    )
    values = tf.range(batch * batches, dtype="float32")
    matrices = tf.random.normal([2 * share, size, size], stddev=size**-0.5)
    vectors = tf.random.normal([2 * share, size])
    groups = [
        in_modes(ONE, lambda p: scatter(values, 1, p))
        | in_modes(BATCH, lambda p: scatter(values, batch, p))
        | in_modes(ALL, lambda _: update(values), [0]),
        in_modes(CHAINED, lambda p: multiply_chain(matrices, vectors, p))
        | in_modes(EACH, lambda p: multiply_each(matrices, vectors, p))
        | in_modes(BATCHED, lambda _: tf.linalg.matvec(matrices, vectors), [0]),
        over_devices(strategy, matrices, vectors),
    ]
    figures: dict[Key, float] = {}
    results: dict[Key, np.ndarray] = {}
    for contestants, mode in itertools.product(groups, MODES):
        runs = {key: run for key, run in contestants.items() if key[2] == mode}
        results |= {key: run().numpy() for key, run in runs.items()}
        # Eager loops take long: fewer rounds, and apart from the others.
        count = rounds if mode == "eager" else 10 * rounds
        figures |= _timing.compare(runs, count)
    return figures, results


def findings(
    figures: dict[Key, float], results: dict[Key, np.ndarray]
) -> list[str]:
    """Returns what the table says, a finding each."""

    def gain(way: str, mode: str) -> str:
        return f"{figures[way, 1, mode] / figures[way, 10, mode]:.2f}"

    def graph(way: str, parallel: int = 0) -> float:
        return figures[way, parallel, "graph"]

    count, one = results[ALL, 0, "graph"].size, graph(ONE, 10)
    sums = [results[way, 0, "graph"] for way in (STRATEGY, BY_HAND)]
    apart = np.max(np.abs(np.subtract(*sums)))
    return [
        f"Little work an iteration: {1e3 * one / count:.1f} µs for each element"
        f" in a graph; all in batches {one / graph(BATCH, 10):.0f} times as"
        f" fast, {ALL} {one / graph(ALL):.0f} times.",
        "10 parallel iterations instead of 1, in a graph, are so many times as"
        f" fast: chained products {gain(CHAINED, 'graph')}, {ONE}"
        f" {gain(ONE, 'graph')}, and independent products, the only ones that"
        f" do not wait for each other, {gain(EACH, 'graph')} (eagerly"
        f" {gain(EACH, 'eager')}, by XLA {gain(EACH, 'XLA')}).",
        "One operation for all products is"
        f" {graph(EACH, 10) / graph(BATCHED):.1f} times as fast, in a graph,"
        " as the loop with 10 parallel iterations.",
        f"On two logical devices, in a graph, {STRATEGY} (run, then reduce with"
        f" SUM) takes {graph(STRATEGY) / graph(BY_HAND):.2f} times as long as"
        f" {BY_HAND}, and {graph(STRATEGY) / graph(ALONE):.2f} times as long as"
        f" one device; the two sums are at most {apart:.0e} apart.",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table of milliseconds, and what it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    figures, results = measure(**vars(parser.parse_args(arguments)))
    heads = "".join(f"{mode:>10}" for mode in MODES)
    print(f"{'ms':<22}{'parallel_iterations':>19}{heads}")
    for way, parallel in dict.fromkeys(key[:2] for key in figures):
        times = (figures[way, parallel, mode] for mode in MODES)
        cells = "".join(f"{time:>10.3f}" for time in times)
        print(f"{way:<22}{parallel or '-':>19}{cells}")
    print(*findings(figures, results), sep="\n")


if __name__ == "__main__":
    main()
