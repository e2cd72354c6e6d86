import itertools

import numpy as np
import pytest

from benchmarks import _pairs


def test_takes_turns_and_leaves_out_the_first() -> None:
    order = []
    rates = {"a": itertools.chain([1.0], itertools.repeat(6.0)), "b": None}
    rates["b"] = itertools.chain([100.0], itertools.repeat(3.0))

    def contestant(name: str):
        def rate() -> float:
            order.append(name)
            return next(rates[name])

        return rate

    ours, other, ratio = _pairs.compare(contestant("a"), contestant("b"), 3)
    assert "".join(order) == "abababab"
    assert (ours, other) == (6.0, 3.0)
    assert ratio == (2.0, 2.0, 2.0)


def test_interval_holds_the_median_and_narrows_with_pairs() -> None:
    random = np.random.default_rng(1)
    few = _pairs.ratio(random.normal(1.0, 0.1, 7))
    many = _pairs.ratio(random.normal(1.0, 0.1, 700))
    assert few.low <= few.median <= few.high
    assert many.high - many.low < few.high - few.low
    assert many.median == pytest.approx(1.0, abs=0.02)


def test_rounds_alternate_and_count_the_second_call_of_a_turn() -> None:
    calls = []
    contestants = {
        name: lambda name=name: calls.append(name) or np.zeros(1)
        for name in "ab"
    }
    times = _pairs.rounds(contestants, 3)
    assert "".join(calls) == "aabb" * 3
    assert {name: len(values) for name, values in times.items()} == {
        "a": 3,
        "b": 3,
    }
    assert np.all(np.concatenate(list(times.values())) > 0)
