import importlib.util
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from errors import RequestError
from training.report import chart
from training.report.panels import Panel

LOSS = Panel("loss", {})


def _line(values, label: str = "train") -> chart.Line:
    return chart.Line(label, np.arange(len(values)) * 10, np.array(values))


def _texts(svg: str) -> list[str | None]:
    root = ElementTree.fromstring(svg)
    return [each.text for each in root.iter() if each.tag.endswith("text")]


def test_an_element_with_text_as_text() -> None:
    svg = chart.draw(LOSS, [_line([3.0, 2.0]), _line([2.0, 1.0], "eval")], 600)
    assert svg.startswith('<svg role="img" aria-label="loss"')
    assert {"step", "train", "eval"} <= set(_texts(svg))


def test_one_line_needs_no_legend() -> None:
    assert "train" not in _texts(chart.draw(LOSS, [_line([3.0, 2.0])], 600))


def test_the_same_lines_give_the_same_bytes() -> None:
    lines = [_line([3.0, 2.0, 1.0])]
    assert chart.draw(LOSS, lines, 600) == chart.draw(LOSS, lines, 600)


def test_charts_of_a_page_share_no_id() -> None:
    lines = [_line([3.0, 2.0, 1.0])]
    svgs = [chart.draw(Panel(title, {}), lines, 600) for title in ("a", "b")]
    first, second = (set(re.findall(r' id="([^"]*)"', svg)) for svg in svgs)
    assert first
    assert not first & second


def test_a_gap_is_not_drawn_over() -> None:
    values = np.linspace(0.0, 1.0, 100) ** 2
    whole = chart.draw(LOSS, [_line(values)], 600)
    values[50] = np.nan
    assert _lifts(chart.draw(LOSS, [_line(values)], 600)) == _lifts(whole) + 1


def _lifts(svg: str) -> int:
    """Returns how often a pen would be set down."""
    return len(re.findall(r"\bM ", svg))


@pytest.mark.parametrize(
    "values",
    [
        [np.nan, np.nan],
        [],
        [0.0, 0.0],
        [1e308, -1e308],
        [1e-308, 1e308],
        [5e-324, 0.0],
        [7.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("from_zero", [True, False])
def test_any_values_can_be_drawn(values, from_zero) -> None:
    panel = Panel("loss", {}, from_zero=from_zero)
    line = chart.Line("a", np.arange(len(values)), np.array(values, float))
    assert chart.draw(panel, [line], 600).endswith("</svg>\n")


def test_a_wide_range_has_powers_of_ten() -> None:
    texts = _texts(chart.draw(LOSS, [_line([10.0, 1.0, 0.01])], 600))
    assert {"10", "1", "0.1", "0.01"} <= set(texts)


def test_shares_are_percents_from_zero() -> None:
    panel = Panel("mfu", {}, is_share=True, from_zero=True)
    texts = _texts(chart.draw(panel, [_line([0.38, 0.4])], 600))
    assert {"0 %", "40 %"} <= set(texts)


def test_a_title_is_escaped_and_no_formula() -> None:
    svg = chart.draw(Panel('$a<"', {}), [_line([1.0], "$x$")] * 2, 600)
    assert 'aria-label="$a&lt;&quot;"' in svg
    assert "$x$" in _texts(svg)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.05, "0.05"), (1500, "1,500"), (20000, "20k"), (1.5e6, "1.5M")],
)
def test_numbers_on_an_axis_are_short(value, text) -> None:
    assert chart._number(value) == text


def test_many_lines_share_the_points() -> None:
    assert chart.points_of_a_line(1) == 600
    assert 100 * chart.points_of_a_line(100) <= 20_000
    assert chart.points_of_a_line(10_000) == 30


def test_forty_charts_stay_below_a_megabyte() -> None:
    count = chart.points_of_a_line(80)
    values = np.random.default_rng(0).normal(size=(2, count))
    svg = chart.draw(LOSS, [_line(each) for each in values], count)
    assert 40 * len(svg) < 900_000


def test_lines_beyond_the_colours_differ_in_dashes() -> None:
    styles = {chart.style(index) for index in range(4 * len(chart.COLORS))}
    assert len(styles) == 4 * len(chart.COLORS)


def test_settings_of_the_user_stay(monkeypatch) -> None:
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30.0)
    svg = chart.draw(LOSS, [_line([1.0])], 600)
    assert "30px" not in svg
    assert matplotlib.rcParams["font.size"] == 30.0


def test_without_matplotlib_it_is_said_how_to_install_it(monkeypatch) -> None:
    chart.check_installed()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"pip install -e '\.\[report\]'"):
        chart.check_installed()
