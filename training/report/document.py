"""Pieces of HTML: whatever comes from a file is escaped here."""

import datetime
import html
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

_STYLE = """
:root { color-scheme: light }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; color: #222;
       margin: 0 auto; padding: 1rem; background: #fff;
       overflow-wrap: anywhere }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .5rem 0 }
h2 { font-size: 1.15rem; margin: 2rem 0 .75rem; padding-bottom: .25rem;
     border-bottom: 1px solid #ddd }
p { margin: .5rem 0 } a { color: #0060a0 }
.note, figcaption span, .tile span { color: #5d5d5d; font-size: .875rem }
.grid { display: grid; gap: 1.5rem; grid-template-columns:
        repeat(auto-fill, minmax(min(100%, 21rem), 1fr)) }
.tiles { display: grid; gap: .75rem; margin: 1rem 0;
         grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)) }
.tile { background: #f4f6f8; border-radius: .5rem; padding: .6rem .8rem }
.tile b { display: block; font-size: 1.3rem; line-height: 1.3 }
.tile span { display: block }
figure { margin: 0; min-width: 0 }
figcaption { line-height: 1.35; margin-bottom: .25rem }
figcaption b, figcaption span { display: block }
svg { display: block; width: 100%; height: auto }
svg text { font-family: system-ui, sans-serif !important }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .9375rem; min-width: 50% }
td, th { padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #e5e5e5;
         text-align: left; vertical-align: top }
th { font-weight: 600 }
td:first-child { color: #5d5d5d; overflow-wrap: normal }
.numbers td, .numbers th { white-space: nowrap }
.changed td { font-weight: 600; color: #222 }
summary { cursor: pointer; margin: .75rem 0; color: #0060a0 }
.key { display: inline-block; width: 1.5rem; vertical-align: .25em;
       margin-right: .5rem; border-top: 3px solid }
"""


class Markup(str):
    """HTML already: it is not escaped once more."""


def escape(value: object) -> Markup:
    """Returns a value as it can stand in a page."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(str(value)))


def document(title: str, parts: Iterable[str]) -> str:
    """Returns a page that needs nothing but itself."""
    body = "\n".join(parts)
    text = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # A browser asks for an icon unless it is told that there is none.
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )
    # Names of files may hold bytes that are no text.
    return text.encode("utf-8", "replace").decode()


def table(
    rows: Iterable[Sequence[object]],
    head: Sequence[object] = (),
    kind: str = "",
) -> str:
    """Returns a table; empty if there is no row.

    It scrolls by itself where it is wider than the page.

    Args:
        rows: Cells of each.
        head: Titles of the columns.
        kind: `changed` is bold, `numbers` keeps each cell on one line.
    """
    lines = [_row("td", row) for row in rows]
    if not lines:
        return ""
    heading = _row("th", head) if head else ""
    inner = f"<table>{heading}{''.join(lines)}</table>"
    return f'<div class="wide {kind}">{inner}</div>'


def _row(tag: str, cells: Sequence[object]) -> str:
    inner = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>\n"


def tiles(values: Mapping[str, tuple[str, str]]) -> str:
    """Returns large numbers: name → (value, note)."""
    inner = "".join(
        f'<div class="tile"><span>{escape(name)}</span>'
        f"<b>{escape(value)}</b><span>{escape(note)}</span></div>\n"
        for name, (value, note) in values.items()
    )
    return f'<div class="tiles">{inner}</div>'


def figure(title: str, svg: str, note: str) -> str:
    """Returns a chart under its title."""
    return (
        f"<figure><figcaption><b>{escape(title)}</b>"
        f"<span>{escape(note)}</span></figcaption>{svg}</figure>"
    )


def grid(figures: Iterable[str]) -> str:
    """Returns charts beside each other where there is room."""
    inner = "\n".join(figures)
    return f'<div class="grid">\n{inner}\n</div>'


def note(text: str) -> str:
    """Returns small print."""
    return f'<p class="note">{escape(text)}</p>'


def line_key(color: str, border: str) -> str:
    """Returns a short line as in a chart.

    Args:
        color: `#0072b2`.
        border: A style of borders in CSS.
    """
    return f'<i class="key" style="border-top: 3px {border} {color}"></i>'


def link(target: str, text: str) -> Markup:
    """Returns a link; the target is relative to the page."""
    return Markup(f'<a href="{escape(target)}">{escape(text)}</a>')


def number(value: float | None) -> str:
    """Returns `0.05123`, `12,345`, `118.9M` or `not finite`."""
    if value is None or value != value:
        return "not finite"
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if size <= abs(value) < 1e16:
            return f"{value / size:.4g}{unit}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"


def percent(value: float) -> str:
    """Returns `83.1 %` or `not finite`."""
    return f"{100 * value:.3g} %" if value == value else "not finite"


def moment(seconds: object) -> str:
    """Returns a time since 1970 as words."""
    if not isinstance(seconds, int | float):
        return "unknown"
    try:
        time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return "unknown"
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
