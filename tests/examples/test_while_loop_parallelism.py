import itertools

import numpy as np
import pytest
import tensorflow as tf

from examples import while_loop_parallelism as example
from tests import wheel

SMALL = {"batch": 4, "batches": 3, "share": 2, "size": 8, "rounds": 1}
LOOPS = (example.ONE, example.BATCH, example.CHAINED, example.EACH)
LOOPLESS = (
    example.ALL,
    example.BATCHED,
    example.ALONE,
    example.STRATEGY,
    example.BY_HAND,
)
ROWS = [
    *itertools.product(LOOPS, example.PARALLEL_ITERATIONS),
    *((way, 0) for way in LOOPLESS),
]


pytestmark = pytest.mark.skipif(
    not wheel.HAS_XLA_ON_CPU, reason="tensorflow-tpu has no XLA for the CPU"
)


@pytest.fixture(scope="module")
def measured() -> tuple[dict, dict]:
    return example.measure(**SMALL)


def test_prints_a_row_for_each_way_and_what_they_say(
    measured, capsys, monkeypatch
) -> None:
    sizes = {}
    monkeypatch.setattr(
        example, "measure", lambda **given: sizes.update(given) or measured
    )
    example.main([f"--{name}={size}" for name, size in SMALL.items()])
    assert sizes == SMALL
    heads, *lines = capsys.readouterr().out.splitlines()
    assert heads.split() == ["ms", "parallel_iterations", *example.MODES]
    for way, parallel in ROWS:
        start = f"{way:<22}{parallel or '-':>19}"
        (row,) = (line for line in lines if line.startswith(start))
        times = [float(cell) for cell in row.removeprefix(start).split()]
        assert len(times) == len(example.MODES)
        assert min(times) > 0
    assert len(lines) == len(ROWS) + 4
    assert lines[-1].startswith("On two logical devices")


def test_measures_every_way_in_every_mode(measured) -> None:
    figures, results = measured
    keys = {(*row, mode) for row in ROWS for mode in example.MODES}
    assert set(figures) == set(results) == keys


@pytest.mark.parametrize(
    "ways",
    [
        (example.ALL, example.ONE, example.BATCH),
        (example.BATCHED, example.EACH),
        (example.CHAINED,),
        (example.ALONE, example.STRATEGY, example.BY_HAND),
    ],
    ids=["elements", "independent", "chained", "devices"],
)
def test_ways_are_equal(measured, ways: tuple[str, ...]) -> None:
    _, results = measured
    first, *others = (
        result for (way, *_), result in results.items() if way in ways
    )
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", example.MODES)
@pytest.mark.parametrize("way", LOOPS)
def test_parallel_iterations_change_nothing(measured, way, mode) -> None:
    _, results = measured
    one, ten, many = (
        results[way, parallel, mode] for parallel in example.PARALLEL_ITERATIONS
    )
    np.testing.assert_array_equal(one, ten)
    np.testing.assert_array_equal(one, many)


def test_results_match_numpy() -> None:
    random = np.random.default_rng(0)
    matrices = random.normal(size=(3, 4, 4))
    vectors = random.normal(size=(3, 4))
    elements = random.uniform(size=6)
    products = np.einsum("tij,tj->ti", matrices, vectors)
    last = matrices[2] @ matrices[1] @ matrices[0] @ vectors[0]
    a, x, values = (
        tf.constant(array, "float32") for array in (matrices, vectors, elements)
    )
    for got, expected in (
        (example.multiply_each(a, x, 10), products),
        (example.multiply_chain(a, x, 10), last),
        (example.sum_products(a, x), products.sum(axis=0)),
        (example.scatter(values, 2, 10), 2 * np.sqrt(elements) + 1),
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["graph", "XLA"])
@pytest.mark.parametrize("way", [example.STRATEGY, example.BY_HAND])
def test_each_device_works_on_its_share(strategy_of, way, mode) -> None:
    """Under XLA too: not both in one program for the first device."""
    matrices, vectors = tf.ones([4, 3, 3]), tf.ones([4, 3])
    ways = example.over_devices(strategy_of(2), matrices, vectors)
    graph = ways[way, 0, mode].get_concrete_function().graph
    calls = [op for op in graph.get_operations() if "Call" in op.type]
    assert [op.device[-5:] for op in calls] == ["CPU:0", "CPU:1"]
    compiled = {op.get_attr("_XlaMustCompile") for op in calls}
    assert compiled == {mode == "XLA"}


def test_findings_state_the_ratios_of_the_table(measured) -> None:
    _, results = measured
    figures = {(*row, mode): 2.0 for row in ROWS for mode in example.MODES}
    figures[example.EACH, 1, "graph"] = 5.0
    figures[example.BATCHED, 0, "graph"] = 0.5
    text = " ".join(example.findings(figures, results))
    assert (
        "do not wait for each other, 2.50 (eagerly 1.00, by XLA 1.00)" in text
    )
    assert "One operation for all products is 4.0 times as fast" in text
