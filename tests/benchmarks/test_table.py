import json

import pytest

from benchmarks import __main__ as main_lib
from benchmarks import _table

ORIGIN = {"commit": "abc", "time": "2026-01-02T03:04:05", "processor": "chip"}


def test_readme_tells_what_was_measured() -> None:
    results = json.loads(_table.RESULTS.read_text())
    text = _table.README.read_text()
    # After `make bench`: python -m benchmarks._table
    assert _table.replace(text, _table.make(results)) == text


def test_a_row_has_figures_intervals_and_bars() -> None:
    key = "loop.cnn.vs_bare"
    low, high = f"{key}_low", f"{key}_high"
    table = _table.make({**ORIGIN, key: 0.98765, low: 0.97, high: 1.0})
    assert "chip, 2026-01-02, commit abc;" in table
    (row,) = (line for line in table.splitlines() if "bare step" in line)
    assert "MLP not measured; CNN 0.988 (0.970-1.000); equ" in row
    assert row.endswith("| ≥ 0.8; 0.95; 0.95 |")


def test_says_what_was_measured_at_another_commit() -> None:
    commits = {"loop.commit": "abc", "layers.commit": "def"}
    assert ", commit abc, layers at def; " in _table.make(ORIGIN | commits)


def test_a_figure_alone_needs_no_interval() -> None:
    table = _table.make({**ORIGIN, "memory.growth_mb": 3.0})
    assert "| default model 3.000 | < 20 |" in table


@pytest.mark.parametrize(
    ("median", "low", "high", "words"),
    [
        (0.95, 0.9, 0.99, ""),
        (0.93, 0.91, 0.96, ""),
        (0.93, 0.88, 0.98, ", **missed by 0.020**"),
        (0.93, 0.92, 0.94, ", **missed by 0.020**"),
    ],
    ids=["reached", "in_narrow_interval", "in_wide_interval", "outside"],
)
def test_a_bar_that_is_missed_is_said(median, low, high, words) -> None:
    key = "loop.cnn.vs_bare"
    figures = {key: median, f"{key}_low": low, f"{key}_high": high}
    table = _table.make({**ORIGIN, **figures})
    assert f"CNN {median:.3f} ({low:.3f}-{high:.3f}){words};" in table


@pytest.mark.parametrize("sign", ["<", "≤"])
def test_a_bar_may_be_an_upper_one(sign) -> None:
    assert _table._holds(1.1, 1.0, 1.2, sign, 1.2)
    assert not _table._holds(1.3, 1.3, 1.3, sign, 1.2)


def test_every_question_has_a_row() -> None:
    asked = {
        key.split(".")[0] for row in _table.ROWS for key in row.keys.values()
    }
    assert asked == set(main_lib.names())


def test_text_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        _table.replace("nothing", _table.make(ORIGIN))


def test_large_figures_have_no_decimals() -> None:
    assert [_table._figure(x) for x in (186.6, 23.46, 0.5)] == [
        "187",
        "23.5",
        "0.500",
    ]
