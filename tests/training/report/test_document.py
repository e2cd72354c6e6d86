import math

import pytest

from training.report import document

NASTY = "<script>alert('&')</script>"


@pytest.mark.parametrize(
    "html",
    [
        document.document(NASTY, []),
        document.table([[NASTY]], [NASTY]),
        document.tiles({NASTY: (NASTY, NASTY)}),
        document.figure(NASTY, "", NASTY),
        document.note(NASTY),
        document.link(NASTY, NASTY),
    ],
)
def test_words_are_escaped(html) -> None:
    assert "<script" not in html
    assert "&lt;script" in html
    assert "'" not in html.partition("</style>")[2]


def test_markup_is_escaped_once() -> None:
    once = document.escape("a < b")
    assert document.escape(once) == "a &lt; b"


def test_a_link_stands_in_a_table() -> None:
    html = document.table([[document.link("a/", "a/")]])
    assert '<td><a href="a/">a/</a></td>' in html


def test_a_table_without_rows_is_none() -> None:
    assert document.table([], ["head"]) == ""


def test_bytes_that_are_no_text_are_replaced() -> None:
    page = document.document("a\udcff", [])
    assert "<title>a?</title>" in page
    page.encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.051234, "0.05123"),
        (12345.6, "12,346"),
        (118_947_840.0, "118.9M"),
        (math.nan, "not finite"),
        (1e300, "1e+300"),
    ],
)
def test_numbers_are_short(value, text) -> None:
    assert document.number(value) == text


def test_percents_are_short() -> None:
    assert document.percent(0.83123) == "83.1 %"
    assert document.percent(math.nan) == "not finite"


@pytest.mark.parametrize("seconds", [None, "1", 1e300, math.nan])
def test_times_that_are_none(seconds) -> None:
    assert document.moment(seconds) == "unknown"


def test_times_are_utc() -> None:
    assert document.moment(86400.5) == "1970-01-02 00:00:00 UTC"
