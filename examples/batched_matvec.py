"""How do I multiply 3,000 matrices by 3,000 vectors on several devices?

A `tf.while_loop` inside `strategy.run` that holds one product keeps the last
one only; what `run` returns is one value per replica, which NumPy cannot read;
and each replica repeats the whole work if all get the same arguments. So:

- give each replica its own rows: `split_values` for what is in memory,
  `split_dataset` for what comes as a stream;
- multiply them in one batched product instead of a loop (`multiply`);
- put the results together, in order, with `strategy.gather`, or with
  `tf.concat` of `strategy.experimental_local_results`.

A loop is for steps that need the one before (`chain`); a `TensorArray` of
fixed size keeps them all.

    python -m examples.batched_matvec

Under `TPUStrategy` create the strategy by `strategies.tpu.create`; nothing
else changes, as long as the replicas divide the rows: all cores run one
program of fixed shapes. The replicas here are logical CPUs that share cores
and memory: they show that the work is split, not what it would gain.

Shapes: `N` matrices and vectors, `K` their size, `R` replicas.
"""

import argparse
from collections.abc import Callable
from typing import Any
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from examples import _timing
from model.layers.mat_vec import matvec
from strategies import StrategyConfig
from strategies import mirrored
from strategies import one_device

MEMORY = "memory: tf.reduce_sum of the matrices"
EAGER = "eager loop of tf.linalg.matvec"
LOOP = "tf.while_loop, all products kept"
BATCHED = "one batched product"

Strategy: TypeAlias = tf.distribute.Strategy
# A tensor if there is one replica, else `tf.distribute.DistributedValues`.
PerReplica: TypeAlias = Any


def eager_loop(matrices: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """Returns all products `[N, K]`, one call of TensorFlow for each."""
    pairs = zip(matrices, vectors, strict=True)
    return tf.stack([tf.linalg.matvec(*pair) for pair in pairs])


@tf.function(autograph=False)
def map_fn(matrices: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """Returns all products `[N, K]` by `tf.map_fn`."""
    return tf.map_fn(
        lambda pair: tf.linalg.matvec(*pair),
        (matrices, vectors),
        fn_output_signature=vectors.dtype,
    )


@tf.function(autograph=False)
def while_loop(matrices: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """Returns all products `[N, K]`, each written where it belongs."""
    num = tf.shape(matrices)[0]

    def body(i: tf.Tensor, kept: Any) -> tuple[Any, ...]:
        product = tf.linalg.matvec(matrices[i], vectors[i])
        return i + 1, kept.write(i, product)

    kept = tf.TensorArray(vectors.dtype, num, element_shape=vectors.shape[1:])
    return tf.while_loop(lambda i, _: i < num, body, (0, kept))[1].stack()


@tf.function(autograph=False)
def chain(matrices: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
    """Returns every `y[i] = matrices[i] @ y[i - 1]`, `[N, K]`.

    `vector` `[K]` is the first factor. No product can start before the one
    before it has ended: this is what a loop is for.
    """
    num = tf.shape(matrices)[0]

    def body(i: tf.Tensor, last: tf.Tensor, kept: Any) -> tuple[Any, ...]:
        product = tf.linalg.matvec(matrices[i], last)
        return i + 1, product, kept.write(i, product)

    kept = tf.TensorArray(vector.dtype, num, element_shape=vector.shape)
    state = (0, vector, kept)
    return tf.while_loop(lambda i, *_: i < num, body, state)[2].stack()


@tf.function(autograph=False)
def multiply(
    strategy: Strategy, matrices: PerReplica, vectors: PerReplica
) -> PerReplica:
    """Returns the products of each replica's rows, in one batch."""
    return strategy.run(matvec, args=(matrices, vectors))


def split_values(strategy: Strategy, array: tf.Tensor) -> PerReplica:
    """Gives each replica its rows of `array` `[N, ...]`, in order."""

    def rows(context: Any) -> tf.Tensor:
        i, of = context.replica_id_in_sync_group, context.num_replicas_in_sync
        return array[len(array) * i // of : len(array) * (i + 1) // of]

    return strategy.experimental_distribute_values_from_function(rows)


def split_dataset(
    strategy: Strategy, *arrays: tf.Tensor
) -> tuple[PerReplica, ...]:
    """Does the same with all arrays at once, by a dataset of one batch."""
    # As one element: slices batched again would copy matrix by matrix.
    dataset = tf.data.Dataset.from_tensors(arrays)
    return next(iter(strategy.experimental_distribute_dataset(dataset)))


def ways(
    matrices: tf.Tensor, vectors: tf.Tensor, strategies: list[Strategy]
) -> dict[str, Callable[[], tf.Tensor]]:
    """Returns a name and a function for each row of the table."""
    found: dict[str, Callable[[], tf.Tensor]] = {
        MEMORY: lambda: tf.reduce_sum(matrices),
        EAGER: lambda: eager_loop(matrices, vectors),
        "tf.map_fn": lambda: map_fn(matrices, vectors),
        LOOP: lambda: while_loop(matrices, vectors),
        "tf.while_loop, chained": lambda: chain(matrices, vectors[0]),
        BATCHED: lambda: matvec(matrices, vectors),
    }
    for strategy in strategies:
        found |= _split_ways(matrices, vectors, strategy)
    return found


def _split_ways(
    matrices: tf.Tensor, vectors: tf.Tensor, strategy: Strategy
) -> dict[str, Callable[[], tf.Tensor]]:
    num = strategy.num_replicas_in_sync
    local = strategy.experimental_local_results
    arrays = matrices, vectors

    def by_values() -> PerReplica:
        split = [split_values(strategy, array) for array in arrays]
        return multiply(strategy, *split)

    def by_dataset() -> PerReplica:
        return multiply(strategy, *split_dataset(strategy, *arrays))

    return {
        f"split over {num}: values, gather": (
            lambda: strategy.gather(by_values(), axis=0)
        ),
        f"split over {num}: values, concat": (
            lambda: tf.concat(local(by_values()), axis=0)
        ),
        f"split over {num}: dataset, gather": (
            lambda: strategy.gather(by_dataset(), axis=0)
        ),
        f"repeated by {num}: no split": (
            lambda: local(multiply(strategy, *arrays))[0]
        ),
    }


def table(milliseconds: dict[str, float]) -> str:
    """Returns the rows: way, ms, share of the memory's speed."""
    memory = milliseconds[MEMORY]
    lines = [f"{'way':<40} {'ms':>8} {'of memory':>9}"]
    for name, each in milliseconds.items():
        lines.append(f"{name:<40} {each:>8.2f} {memory / each:>9.1%}")
    return "\n".join(lines)


def sentences(
    milliseconds: dict[str, float], num_bytes: int, shares: list[list[int]]
) -> list[str]:
    """Says what the figures mean.

    Args:
        milliseconds: Name → time of each of `ways`.
        num_bytes: Size of all matrices.
        shares: Rows of each replica, one list a strategy.
    """
    memory, batched = milliseconds[MEMORY], milliseconds[BATCHED]
    found = [
        f"The memory delivers {num_bytes / memory / 1e6:.1f} GB/s; one batched "
        f"product uses {memory / batched:.0%} of that.",
        f"The eager loop takes {milliseconds[EAGER] / batched:.1f} times as "
        f"long, the while_loop {milliseconds[LOOP] / batched:.1f} times.",
    ]
    for rows in shares:
        num = len(rows)
        values = milliseconds[f"split over {num}: values, gather"]
        dataset = milliseconds[f"split over {num}: dataset, gather"]
        repeated = milliseconds[f"repeated by {num}: no split"]
        found.append(
            f"Replicas: {num}, with {' + '.join(map(str, rows))} rows. Split: "
            f"{values / batched:.2f} times the batched product's time, or "
            f"{dataset / batched:.2f} with a dataset made anew each time; "
            f"repeated by each: {repeated / batched:.2f}."
        )
    return found


def make_data(num: int, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns random matrices `[N, K, K]` and vectors `[N, K]`, float32."""
    random = np.random.default_rng(0)
    # Scaled so that a chain of products neither grows nor dies out at once.
    matrices = random.normal(scale=size**-0.5, size=(num, size, size))
    vectors = random.normal(size=(num, size))
    return tf.constant(matrices, tf.float32), tf.constant(vectors, tf.float32)


def rows_of_replicas(strategy: Strategy, num: int) -> list[int]:
    """Returns how many of `num` rows `split_values` gives each replica."""
    split = split_values(strategy, tf.range(num))
    return [len(rows) for rows in strategy.experimental_local_results(split)]


def main() -> None:
    """Measures all ways; prints the table and what it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=3000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    # The larger strategy first: the first use fixes the number of devices.
    config = StrategyConfig(strategy="mirrored", devices=("cpu:0", "cpu:1"))
    two = mirrored.create(config)
    one = one_device.create(StrategyConfig(devices=("cpu:0",)))
    matrices, vectors = make_data(arguments.num, arguments.size)
    milliseconds = _timing.compare(
        ways(matrices, vectors, [one, two]), arguments.rounds
    )
    shares = [rows_of_replicas(each, arguments.num) for each in (one, two)]
    num_bytes = matrices.dtype.size * int(tf.size(matrices))
    print(table(milliseconds), end="\n\n")
    print("\n".join(sentences(milliseconds, num_bytes, shares)))


if __name__ == "__main__":
    main()
