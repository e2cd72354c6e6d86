import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from examples import batched_matvec
from tests.processes import ROOT

REPLICAS = pytest.mark.parametrize("replicas", [1, 2, 4])
# 7 rows: no number of replicas but one divides them.
MATRICES, VECTORS = batched_matvec.make_data(7, 5)
EXACT = np.einsum(
    "nmk,nk->nm", MATRICES.numpy().astype("f8"), VECTORS.numpy().astype("f8")
)


def assert_close(got: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def all_ways(strategies: list[tf.distribute.Strategy]) -> dict:
    return batched_matvec.ways(MATRICES, VECTORS, strategies)


def test_every_way_returns_all_products_in_order(strategy_of) -> None:
    found = all_ways([strategy_of(1), strategy_of(2), strategy_of(4)])
    assert len(found) == 6 + 3 * 4
    for name, way in found.items():
        if name not in (batched_matvec.MEMORY, "tf.while_loop, chained"):
            np.testing.assert_allclose(
                way(), EXACT, rtol=0, atol=1e-5, err_msg=name
            )


def test_chain_keeps_every_iterate(strategy_of) -> None:
    last = VECTORS.numpy()[0].astype("f8")
    expected = []
    for matrix in MATRICES.numpy().astype("f8"):
        last = matrix @ last
        expected.append(last)
    assert_close(batched_matvec.chain(MATRICES, VECTORS[0]), np.stack(expected))
    assert_close(all_ways([])["tf.while_loop, chained"](), np.stack(expected))


@pytest.mark.parametrize(
    "loop", [batched_matvec.while_loop, batched_matvec.map_fn]
)
def test_loops_are_loops_in_the_graph(loop) -> None:
    graph = loop.get_concrete_function(MATRICES, VECTORS).graph.as_graph_def()
    operations = [node.op for node in graph.node]
    assert sum("While" in operation for operation in operations) == 1


@REPLICAS
def test_values_are_split_in_order(strategy_of, replicas: int) -> None:
    strategy = strategy_of(replicas)
    split = batched_matvec.split_values(strategy, tf.range(8))
    local = strategy.experimental_local_results(split)
    assert [len(rows) for rows in local] == [8 // replicas] * replicas
    np.testing.assert_array_equal(tf.concat(local, 0), range(8))


@REPLICAS
def test_dataset_is_split_in_order(strategy_of, replicas: int) -> None:
    strategy = strategy_of(replicas)
    both = batched_matvec.split_dataset(strategy, tf.range(8), 10 * tf.range(8))
    for split, factor in zip(both, (1, 10), strict=True):
        local = strategy.experimental_local_results(split)
        assert [len(rows) for rows in local] == [8 // replicas] * replicas
        np.testing.assert_array_equal(
            tf.concat(local, 0), np.arange(8) * factor
        )


@REPLICAS
def test_each_replica_multiplies_its_own_rows(
    strategy_of, replicas: int
) -> None:
    strategy = strategy_of(replicas)
    split = [
        batched_matvec.split_values(strategy, array)
        for array in (MATRICES, VECTORS)
    ]
    products = batched_matvec.multiply(strategy, *split)
    local = strategy.experimental_local_results(products)
    shares = batched_matvec.rows_of_replicas(strategy, 7)
    assert [len(rows) for rows in local] == shares
    assert sum(shares) == 7
    assert max(shares) - min(shares) <= 1
    assert_close(strategy.gather(products, axis=0), EXACT)


def test_what_is_not_split_is_repeated_by_each_replica(strategy_of) -> None:
    strategy = strategy_of(2)
    products = batched_matvec.multiply(strategy, MATRICES, VECTORS)
    local = strategy.experimental_local_results(products)
    assert [len(rows) for rows in local] == [7, 7]


def test_table_and_sentences_are_computed(strategy_of) -> None:
    milliseconds = dict.fromkeys(all_ways([strategy_of(2)]), 8.0)
    milliseconds[batched_matvec.MEMORY] = 2.0
    milliseconds[batched_matvec.BATCHED] = 4.0
    lines = batched_matvec.table(milliseconds).splitlines()[1:]
    assert len(lines) == len(milliseconds)
    assert all(
        line.startswith(name)
        for line, name in zip(lines, milliseconds, strict=True)
    )
    assert "100.0%" in lines[0]
    assert "25.0%" in lines[1]
    said = batched_matvec.sentences(milliseconds, 10**7, [[3, 4]])
    assert "5.0 GB/s" in said[0]
    assert "uses 50%" in said[0]
    assert "eager loop takes 2.0 times" in said[1]
    assert "Replicas: 2, with 3 + 4 rows. Split: 2.00 times" in said[2]
    assert len(said) == 3


def test_runs_as_a_program(strategy_of) -> None:
    program = [sys.executable, "-m", "examples.batched_matvec"]
    sizes = ["--num=7", "--size=5", "--rounds=1"]
    done = subprocess.run(
        program + sizes, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    table, _, said = done.stdout.partition("\n\n")
    names = all_ways([strategy_of(1), strategy_of(2)])
    assert [line.split("  ")[0] for line in table.splitlines()[1:]] == [*names]
    assert "with 7 rows" in said
    assert "with 3 + 4 rows" in said
