import re

import numpy as np
import pytest
import tensorflow as tf

from training import limits

STEPS, MANY = 10, 100


def made_up(constant=1.0, real=1.0, apart=1.0, call=0.0) -> limits.Times:
    """Returns times of steps, in seconds, the first of three too slow."""
    seconds = {
        ("real", STEPS): real + call / STEPS,
        ("constant", STEPS): constant + call / STEPS,
        ("apart", STEPS): apart + call / STEPS,
        ("constant", 1): constant + call,
        ("constant", MANY): constant + call / MANY,
    }
    return {run: each * np.array([9, 1, 1]) for run, each in seconds.items()}


def found(**times: float) -> dict[str, float]:
    examples = {"real": 64, "constant": 64, "apart": 64}
    return limits.figures(made_up(**times), examples, STEPS, MANY)


@pytest.mark.parametrize(
    ("times", "input_", "all_reduce", "host_loop"),
    [
        ({}, 0, 0, 0),
        ({"real": 1.25}, 0.2, 0, 0),
        ({"apart": 0.6}, 0, 0.4, 0),
        ({"call": 10.0}, 0, 0, 0.5),
        ({"real": 2.0, "apart": 0.75}, 0.5, 0.25, 0),
        ({"real": 0.9, "apart": 1.1}, 0, 0, 0),
    ],
    ids=["none", "input", "all_reduce", "host_loop", "two", "noise"],
)
def test_shares(times, input_, all_reduce, host_loop) -> None:
    figures = found(**times)
    assert figures["input"] == pytest.approx(input_)
    assert figures["all_reduce"] == pytest.approx(all_reduce)
    assert figures["host_loop"] == pytest.approx(host_loop, abs=1e-12)
    assert figures["call_secs"] == pytest.approx(times.get("call", 0))


def test_rates_are_medians_of_examples_per_second() -> None:
    figures = found(real=2.0, apart=0.5)
    assert figures["real_examples_per_sec"] == 32
    assert figures["constant_examples_per_sec"] == 64
    assert figures["apart_examples_per_sec"] == 128


def test_one_replica_has_no_all_reduce() -> None:
    times = made_up(real=2.0)
    del times["apart", STEPS]
    figures = limits.figures(times, {"real": 8}, STEPS, MANY)
    assert figures["all_reduce"] == 0
    assert figures["input"] == 0.5


def test_a_step_too_slow_for_a_loop_hides_no_call() -> None:
    times = {("real", 1): np.ones(3), ("constant", 1): np.ones(3)}
    figures = limits.figures(times, {"real": 8}, 1, 1)
    assert figures["call_secs"] == figures["host_loop"] == 0


@pytest.mark.parametrize(
    ("shares", "name"),
    [
        ({"input": 0.3, "all_reduce": 0.1}, "input"),
        ({"input": 0.1, "all_reduce": 0.3}, "all_reduce"),
        ({"input": 0.04, "all_reduce": 0.0}, "compute"),
    ],
    ids=["first", "second", "all small"],
)
def test_names_the_largest(shares, name) -> None:
    assert limits.name_largest(shares) == name


@pytest.mark.parametrize(
    ("most", "counts"),
    [(1, [1]), (2, [1, 2]), (4, [1, 2, 4]), (6, [1, 2, 4, 6])],
)
def test_counts_double_up_to_the_most(most, counts) -> None:
    assert limits.choose_counts(most) == counts


def rates(real: float, **others: float) -> dict[str, float]:
    return {
        "real_examples_per_sec": real,
        "constant_examples_per_sec": real,
        "call_secs": 0.002,
        "input": 0.0,
        "all_reduce": 0.0,
        "host_loop": 0.0,
        **others,
    }


def test_efficiency_is_against_so_many_times_the_first() -> None:
    first = limits.compare(1, rates(100), None)
    assert first["efficiency"] == 1
    assert first["limit"] == "compute"
    assert "strong_efficiency" not in first
    row = limits.compare(
        2,
        rates(150, apart_examples_per_sec=190, strong_examples_per_sec=120),
        first,
    )
    assert row["replicas"] == 2
    assert row["efficiency"] == 0.75
    assert row["strong_efficiency"] == 0.6
    assert row["devices"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"input": 0.9}, "the input: 100 examples/s become 100"),
        ({"all_reduce": 0.9}, "the all-reduce: 100 .* become 200"),
        ({"host_loop": 0.9}, "the host loop: .* 2.00 ms"),
        ({"apart_examples_per_sec": 110}, "cores .*: 110 .* 2 times 100"),
        ({}, "the model itself"),
    ],
    ids=["input", "all_reduce", "host_loop", "devices", "compute"],
)
def test_the_table_says_what_limits_and_why(others, words) -> None:
    first = limits.compare(1, rates(100), None)
    figures = rates(100, **{"apart_examples_per_sec": 200} | others)
    lines = limits.table([first, limits.compare(2, figures, first)])
    assert lines[1].split() == "1 100 1.00 - - 0.00 0.00 0.00 0.00".split()
    assert lines[2].split()[:3] == ["2", "100", "0.50"]
    assert len({len(line) for line in lines[:3]}) == 1
    assert len(lines) == 5
    assert lines[3].startswith("1 limited by the model itself")
    assert lines[4].startswith("2 limited by ")
    assert re.search(words, lines[4])


def test_measures_every_way_in_turn(strategy_of, monkeypatch) -> None:
    calls = []
    # A step takes a microsecond, however busy the machine is.
    monkeypatch.setattr(
        limits, "_seconds", lambda train, steps: train(steps) or steps / 1e6
    )

    def way(name: str, examples: int) -> limits.Way:
        return limits.Way(lambda steps: calls.append((name, steps)), examples)

    ways = {name: way(name, 8) for name in ("real", "constant", "apart")}
    ways["strong"] = way("strong", 4)
    figures = limits.measure(strategy_of(1), ways, 7, 0.01)
    assert figures["strong_examples_per_sec"] > 0
    assert {f"{name}_examples_per_sec" for name in ways} < figures.keys()
    # What follows the preparation is equal rounds.
    names = [call for i, call in enumerate(calls) if i and call != calls[i - 1]]
    turns = [("real", 7), ("constant", 7), ("apart", 7), ("strong", 7)]
    turns += [("constant", 1), ("constant", 100)]
    assert names[-limits.ROUNDS * len(turns) :] == limits.ROUNDS * turns


def test_a_loop_ends_within_its_turn(strategy_of, monkeypatch) -> None:
    lengths = []
    monkeypatch.setattr(
        limits, "_seconds", lambda train, steps: train(steps) or steps / 10
    )
    way = limits.Way(lengths.append, 8)
    ways = {"real": way, "constant": way}
    limits.measure(strategy_of(1), ways, 100, seconds=4)
    assert max(lengths) == 2


def test_a_constant_gives_its_batch_again_and_again() -> None:
    constant = limits.Constant((tf.ones([2]), tf.zeros([2])))
    assert constant.get_next() is constant.get_next()
