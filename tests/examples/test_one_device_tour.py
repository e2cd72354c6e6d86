import subprocess
import sys

import numpy as np
import pytest

from examples import one_device_tour
from tests.processes import ROOT

REPLICAS = pytest.mark.parametrize("replicas", [1, 2, 4])
# 37 rows: three global batches of 12 and one row, for at most four replicas.
ROWS = np.random.default_rng(0).random((37, 3), np.float32)
EXACT = ROWS.astype("f8")


@pytest.fixture
def tour_on(strategy_of, monkeypatch):
    monkeypatch.setattr(one_device_tour, "GLOBAL_BATCH_SIZE", 12)
    return lambda replicas: one_device_tour.tour(
        strategy_of(replicas), ROWS, rounds=1
    )


@REPLICAS
def test_totals_are_the_same_on_any_number_of_replicas(
    tour_on, replicas: int
) -> None:
    found = tour_on(replicas)
    assert len(one_device_tour.TOTALS) == 4
    for called in one_device_tour.TOTALS:
        assert found[called].values == pytest.approx([EXACT.sum()], rel=1e-5)
    mean = found["reduce MEAN, axis=0"].values
    assert mean == pytest.approx([EXACT.sum(axis=1).mean()], rel=1e-5)


@REPLICAS
def test_each_replica_holds_its_own_values(tour_on, replicas: int) -> None:
    found = tour_on(replicas)
    every = range(replicas)
    sums = [EXACT[i::replicas].sum() for i in every]
    assert found["run"].values == pytest.approx(sums, rel=1e-5)
    local = found["experimental_local_results"].values
    assert local == pytest.approx(sums, rel=1e-5)
    assert found["scope"].values == (37.0,) * replicas
    constant = found["values_from_function, a constant"].values
    assert constant == (1.0,) * replicas
    shares = found["values_from_function, by id"].values
    for i in every:
        np.testing.assert_array_equal(shares[i], ROWS[i::replicas])
    count = found["values_from_function, by count"].values
    assert count == (1.0 / replicas,) * replicas
    assert found["values_from_function, placed"].values == (*every,)


@pytest.mark.parametrize(
    ("replicas", "value", "variable"),
    [
        (1, "EagerTensor", "ResourceVariable"),
        (2, "PerReplica", "MirroredVariable"),
    ],
    ids=["one", "two"],
)
def test_types_say_whether_there_are_several_replicas(
    tour_on, replicas: int, value: str, variable: str
) -> None:
    found = tour_on(replicas)
    kinds = {called: row.kind for called, row in found.items()}
    assert kinds.pop("scope") == variable
    assert kinds.pop("experimental_local_results") == "tuple"
    assert kinds.pop("run") == value
    for called, kind in kinds.items():
        per_replica = called.startswith("values_from_function")
        assert kind == (value if per_replica else "EagerTensor"), called


@REPLICAS
def test_placed_values_are_on_the_devices_of_their_replicas(
    strategy_of, replicas: int
) -> None:
    strategy = strategy_of(replicas)
    values = one_device_tour.placed(strategy, ROWS)
    local = strategy.experimental_local_results(values)
    names = [value.device.rpartition("/device:")[2] for value in local]
    assert names == [f"CPU:{i}" for i in range(replicas)]


def test_only_an_array_used_inside_is_put_into_the_graph() -> None:
    rows = np.ones((1000, 25), np.float32)
    inside, argument, outside = one_device_tour.graph_sizes(rows).values()
    assert rows.nbytes < inside < rows.nbytes + 4000
    assert argument < 4000
    assert outside < 4000


def test_table_and_sentences_are_computed(tour_on, strategy_of) -> None:
    found = tour_on(2)
    lines = one_device_tour.table(found).splitlines()
    assert [line[:33].strip() for line in lines[1:]] == [*found]
    assert lines[-1].endswith(
        f"{EXACT[::2].sum():.6g} | {EXACT[1::2].sum():.6g}"
    )
    assert any(line.endswith("  [19, 3] | [18, 3]") for line in lines)
    said = one_device_tour.sentences(strategy_of(2), found, ROWS)
    assert "CPU:0 and CPU:1" in said[1]
    assert f"{ROWS.nbytes} bytes" in said[2]
    assert len(said) == 6
    wrong = found["reduce SUM, axis=0"]._replace(values=(2 * EXACT.sum(),))
    found["reduce SUM, axis=0"] = wrong
    said = one_device_tour.sentences(strategy_of(2), found, ROWS)
    assert "within 1e+00 of" in said[0]


def assert_printed(text: str, strategy: str) -> None:
    table, _, said = text.partition("\n\n")
    heading, _, *lines = table.splitlines()
    assert heading == strategy
    assert [line[:33].strip() for line in lines] == [*one_device_tour.STOPS]
    assert "14,800 bytes" in said


SIZES = ["--rows=37", "--rounds=1"]


def test_main_takes_one_device(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["one_device_tour", *SIZES])
    one_device_tour.main()
    assert_printed(capsys.readouterr().out, "OneDeviceStrategy, replicas: 1")


def test_runs_as_a_program_on_two_replicas() -> None:
    program = [sys.executable, "-m", "examples.one_device_tour"]
    done = subprocess.run(
        [*program, "--replicas=2", *SIZES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert_printed(done.stdout, "MirroredStrategy, replicas: 2")
