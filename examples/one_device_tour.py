"""What do the methods of `OneDeviceStrategy` do, and what comes back?

Each function in `STOPS` is one answer, for any number of replicas: try code on
this strategy before it is distributed. One replica gives plain tensors, several
give `PerReplica` values; `experimental_local_results` makes a tuple of either.
In the table `values_from_function` is short for
`experimental_distribute_values_from_function`.

    python -m examples.one_device_tour
    python -m examples.one_device_tour --replicas=2

The second splits the CPU in two and takes `MirroredStrategy`: same code, same
totals. Several workers and TPUs: see README.md, table of strategies.

Shapes: `N` rows and `K` columns of the data, `R` replicas.
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from examples import _timing
from strategies import StrategyConfig
from strategies import mirrored
from strategies import one_device

GLOBAL_BATCH_SIZE = 2000
Strategy: TypeAlias = tf.distribute.Strategy
# A tensor if there is one replica, else `tf.distribute.DistributedValues`.
PerReplica: TypeAlias = Any


class Row(NamedTuple):
    """What came back from one stop: its type, and each replica's part."""

    kind: str
    values: tuple[np.ndarray, ...]
    milliseconds: float


def scope(strategy: Strategy, rows: np.ndarray) -> tf.Variable:
    """A variable made in the scope has a copy on each device."""
    with strategy.scope():
        return tf.Variable(float(len(rows)))


def run_on_shares(strategy: Strategy, rows: np.ndarray) -> PerReplica:
    """Sums each replica's share `[N/R, K]`: not yet the total."""
    return _run(strategy, tf.reduce_sum, by_replica_id(strategy, rows))


def reduce_without_axis(strategy: Strategy, rows: np.ndarray) -> tf.Tensor:
    """Adds the replicas' values, which must be of one shape, and keeps it."""
    return strategy.reduce("SUM", run_on_shares(strategy, rows), axis=None)


def reduce_along_rows(strategy: Strategy, rows: np.ndarray) -> tf.Tensor:
    """Adds over the rows as well: `[N/R, K]` on each replica become `[K]`."""
    shares = by_replica_id(strategy, rows)
    return tf.reduce_sum(strategy.reduce("SUM", shares, axis=0))


def mean_along_rows(strategy: Strategy, rows: np.ndarray) -> tf.Tensor:
    """Divides by `N`, so that shares of unequal size count rightly."""
    shares = by_replica_id(strategy, rows)
    return tf.reduce_sum(strategy.reduce("MEAN", shares, axis=0))


def distribute_dataset(strategy: Strategy, rows: np.ndarray) -> tf.Tensor:
    """Splits each global batch of a dataset over the replicas."""
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(GLOBAL_BATCH_SIZE)
    return _total(strategy, strategy.experimental_distribute_dataset(dataset))


def datasets_from_function(strategy: Strategy, rows: np.ndarray) -> tf.Tensor:
    """Calls a function once for each worker; it batches for one replica."""

    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        # Without `shard` every worker would read everything.
        return (
            tf.data.Dataset.from_tensor_slices(rows)
            .shard(context.num_input_pipelines, context.input_pipeline_id)
            .batch(context.get_per_replica_batch_size(GLOBAL_BATCH_SIZE))
        )

    return _total(strategy, strategy.distribute_datasets_from_function(make))


def constant(strategy: Strategy, rows: np.ndarray) -> PerReplica:
    """The same value for each replica."""
    distribute = strategy.experimental_distribute_values_from_function
    return distribute(lambda context: tf.constant(1.0))


def by_replica_id(strategy: Strategy, rows: np.ndarray) -> PerReplica:
    """A share of the rows: every `R`th, from the replica's own number on."""

    def share(context: Any) -> tf.Tensor:
        first = context.replica_id_in_sync_group
        return tf.constant(rows[first :: context.num_replicas_in_sync])

    return strategy.experimental_distribute_values_from_function(share)


def by_replica_count(strategy: Strategy, rows: np.ndarray) -> PerReplica:
    """One, divided among the replicas."""
    distribute = strategy.experimental_distribute_values_from_function
    return distribute(lambda each: tf.constant(1.0 / each.num_replicas_in_sync))


def placed(strategy: Strategy, rows: np.ndarray) -> PerReplica:
    """Values that are made on the replica's own device."""

    def place(context: Any) -> tf.Tensor:
        replica = context.replica_id_in_sync_group
        with tf.device(strategy.extended.worker_devices[replica]):
            return tf.constant(float(replica))

    return strategy.experimental_distribute_values_from_function(place)


def local_results(strategy: Strategy, rows: np.ndarray) -> tuple[Any, ...]:
    """A tuple with the value of each replica of this process."""
    return strategy.experimental_local_results(run_on_shares(strategy, rows))


Stops: TypeAlias = dict[str, Callable[[Strategy, np.ndarray], Any]]
# The same on any number of replicas.
TOTALS: Stops = {
    "reduce SUM, axis=None": reduce_without_axis,
    "reduce SUM, axis=0": reduce_along_rows,
    "experimental_distribute_dataset": distribute_dataset,
    "distribute_datasets_from_function": datasets_from_function,
}
STOPS: Stops = {
    "scope": scope,
    "run": run_on_shares,
    **TOTALS,
    "reduce MEAN, axis=0": mean_along_rows,
    "values_from_function, a constant": constant,
    "values_from_function, by id": by_replica_id,
    "values_from_function, by count": by_replica_count,
    "values_from_function, placed": placed,
    "experimental_local_results": local_results,
}


def tour(strategy: Strategy, rows: np.ndarray, rounds: int) -> dict[str, Row]:
    """Makes all stops with the data `rows` `[N, K]`."""
    visits: dict[str, Callable[[], Any]] = {
        called: functools.partial(stop, strategy, rows)
        for called, stop in STOPS.items()
    }
    milliseconds = _timing.compare(visits, rounds)
    found = {}
    for called, visit in visits.items():
        value = parts = visit()
        if not isinstance(value, tuple):
            parts = strategy.experimental_local_results(value)
        arrays = tuple(np.asarray(part) for part in parts)
        found[called] = Row(type(value).__name__, arrays, milliseconds[called])
    return found


def graph_sizes(rows: np.ndarray) -> dict[str, int]:
    """Returns the bytes of a GraphDef that sums a dataset made of `rows`.

    Used inside a `tf.function` the array becomes a constant of its graph, and
    no GraphDef can exceed 2 GB.
    """
    make = tf.data.Dataset.from_tensor_slices

    def total(dataset: tf.data.Dataset) -> tf.Tensor:
        return dataset.reduce(0.0, lambda sum_, row: sum_ + tf.reduce_sum(row))

    def size(function: Callable[..., tf.Tensor], *arguments: Any) -> int:
        traced = tf.function(function, autograph=False)
        graph = traced.get_concrete_function(*arguments).graph
        return graph.as_graph_def().ByteSize()

    return {
        "array used inside": size(lambda: total(make(rows))),
        "array as an argument": size(lambda array: total(make(array)), rows),
        "dataset made outside": size(total, make(rows)),
    }


def table(found: dict[str, Row]) -> str:
    """Returns the rows as text; an array is shown by its shape."""
    lines = [f"{'called':<33} {'came back':<16} {'ms':>6}  on each replica"]
    for called, (kind, values, milliseconds) in found.items():
        parts = [str(list(v.shape)) if v.ndim else f"{v:.6g}" for v in values]
        start = f"{called:<33} {kind:<16} {milliseconds:>6.2f}  "
        lines.append(start + " | ".join(parts))
    return "\n".join(lines)


def sentences(
    strategy: Strategy, found: dict[str, Row], rows: np.ndarray
) -> list[str]:
    """Says what the figures of `tour` mean and how large the graphs are."""
    exact = rows.sum(dtype=np.float64)
    error = max(abs(found[name].values[0] / exact - 1) for name in TOTALS)
    local = strategy.experimental_local_results(placed(strategy, rows))
    devices = [one.device.rpartition("/device:")[2] for one in local]
    sizes = graph_sizes(rows).items()
    return [
        f"The {len(TOTALS)} totals: within {error:.0e} of NumPy's {exact:.6g}.",
        f"Placed values are on {' and '.join(devices)}.",
        f"A sum over the array's {rows.nbytes:,} bytes has a GraphDef of",
        *(f"  {size:>12,} bytes with the {how}" for how, size in sizes),
    ]


def main() -> None:
    """Makes the tour; prints the table and what it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1, choices=(1, 2))
    parser.add_argument("--rows", type=int, default=10_001)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    module = one_device if arguments.replicas == 1 else mirrored
    cpus = tuple(f"cpu:{i}" for i in range(arguments.replicas))
    strategy = module.create(StrategyConfig(devices=cpus))
    rows = np.random.default_rng(0).random((arguments.rows, 100), np.float32)
    found = tour(strategy, rows, arguments.rounds)
    print(f"{type(strategy).__name__}, replicas: {arguments.replicas}")
    print(table(found), end="\n\n")
    print("\n".join(sentences(strategy, found, rows)))


@tf.function(autograph=False)
def _run(strategy: Strategy, function: Any, rows: PerReplica) -> PerReplica:
    return strategy.run(function, args=(rows,))


def _total(strategy: Strategy, dataset: Any) -> tf.Tensor:
    sums = (_run(strategy, tf.reduce_sum, batch) for batch in dataset)
    return tf.add_n([strategy.reduce("SUM", each, axis=None) for each in sums])


if __name__ == "__main__":
    main()
