import numpy as np
import pytest

from examples import _callbacks


@pytest.fixture(scope="module")
def found() -> tuple[dict, dict, dict]:
    """Results, most active calls and calls, by way."""
    ways = _callbacks.make_ways(count=10, milliseconds=10)
    results = {way: run().numpy() for way, (run, _) in ways.items()}
    most = {way: max(counts) for way, (_, counts) in ways.items()}
    calls = {way: len(counts) for way, (_, counts) in ways.items()}
    return results, most, calls


def test_every_way_calls_once_an_element_and_agrees(found) -> None:
    results, _, calls = found
    assert set(calls.values()) == {10}
    for result in results.values():
        np.testing.assert_array_equal(result, 2 * np.arange(10) + 1)


@pytest.mark.parametrize("parallel", _callbacks.PARALLEL_ITERATIONS)
@pytest.mark.parametrize("kind", ["py_function", "numpy_function"])
def test_operations_with_state_never_overlap(found, kind, parallel) -> None:
    _, most, _ = found
    assert most[f"{kind}, waits, {parallel}"] == 1


def test_calls_of_a_dataset_overlap_if_asked_to(found) -> None:
    # Those of a stateless operation need two inter-op threads: tested with
    # the example, whose child processes have them.
    _, most, _ = found
    assert most["Dataset.map, waits, 1"] == 1
    assert most["Dataset.map, waits, 10"] > 1


def test_measure_times_all_ways() -> None:
    times, active = _callbacks.measure(count=2, milliseconds=0.1, rounds=1)
    assert list(times) == list(active)
    assert min(times.values()) > 0
    assert min(active.values()) == 1
