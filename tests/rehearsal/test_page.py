import dataclasses
import math
import re

from rehearsal import page
from rehearsal import report
from rehearsal.report import Inputs
from tests.rehearsal.test_compare import GOOD
from tests.rehearsal.test_report import FITS
from tests.rehearsal.test_report import FITS_NOT
from tests.rehearsal.test_report import INPUTS


def render(*compiled: object, **change: object) -> str:
    checked = dataclasses.replace(GOOD, **change)
    return page.render(report.summary(checked, compiled, INPUTS))


def test_is_one_file_without_script() -> None:
    html = render(FITS)
    assert "<script" not in html
    assert "http" not in html
    for tag in ("table", "div", "p", "body", "html"):
        opened = len(re.findall(rf"<{tag}\b", html))
        assert opened == html.count(f"</{tag}>") > 0


def test_shows_which_core_holds_what() -> None:
    html = render(FITS)
    assert "core 0<br>[:, :, 0:3, :]" in html
    assert "core 1<br>[:, :, 3:6, :]" in html


def test_shows_the_memory_as_a_part_of_what_there_is() -> None:
    html = render(FITS)
    assert 'class="held" style="width:17.75%"' in html
    assert 'class="temporary" style="width:5.92%"' in html
    assert 'class="over" style="width:100.00%"' in render(FITS_NOT)


def test_compares_topologies_with_the_first() -> None:
    html = render(FITS, FITS_NOT)
    assert "<td>100%</td>" in html
    assert "<td>no</td>" in html


def test_says_whether_the_numbers_are_the_same() -> None:
    assert "<b>The same numbers</b>" in render(FITS)
    assert "Not the same" in render(FITS, loss_difference=1.0)
    assert "Not the same" in render(FITS, weight_difference=math.inf)
    assert "Not the same" in render(FITS, apart="model/a")
    assert "input 1 is &lt;split&gt;" in render(
        FITS, misplaced="input 1 is <split>"
    )


def test_nothing_need_be_compiled() -> None:
    assert "<h2>Topologies</h2>" in render()


def test_nothing_need_be_run() -> None:
    inputs = Inputs([[32, 8, 6, 1]], [], 2)
    html = page.render(report.summary(None, [FITS], inputs))
    assert "no step was run" in html
    assert "Each of 2 devices has the whole [32, 8, 6, 1]" in html
