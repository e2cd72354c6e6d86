"""Lines over the steps, drawn as SVG by Matplotlib.

Matplotlib is imported by the first chart: it takes half a second, and who
never asks for a page need not have it.
"""

import html
import importlib.util
import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

import numpy as np

from errors import RequestError
from training.report import thin
from training.report.panels import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# All points of a page, at about 15 bytes each, and those of one line.
_MOST_POINTS = 20_000
_MOST_OF_A_LINE = 600
_FEW = 40
# A line that spans more than this has a logarithmic axis.
_SPAN = 100
_LARGEST = 1e300
# Of an axis that begins at 0: its length in largest values.
_MARGIN = 1.08
# A phone is 360 units wide at the least, so that a text of 9 can be read.
_SIZE = (4.4, 2.75)
# Colours that can be told apart without seeing red or green (Okabe and Ito).
COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#5d5d5d",
    "#a08a00",
)
_STYLES = ("-", "--", ":", "-.")
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,
    "text.color": "#333333",
    "axes.edgecolor": "#999999",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": "#555555",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": "#e8e8e8",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "lines.linewidth": 1.3,
    "lines.markersize": 3,
    "legend.frameon": False,
}
# Without them the same lines give the same bytes, and no address is named.
_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


class Line(NamedTuple):
    """One line of a chart."""

    label: str
    steps: np.ndarray  # [N]
    values: np.ndarray  # [N]; NaN is a gap


def check_installed() -> None:
    """Refuses to go on without Matplotlib; does not import it.

    Raises:
        RequestError: with the command that installs it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise RequestError(
            "a report is drawn by Matplotlib, which is not installed; run "
            "`python -m pip install -e '.[report]'` first."
        )


def points_of_a_line(num_lines: int) -> int:
    """Returns how many points a line may have on a page of `num_lines`."""
    return min(_MOST_OF_A_LINE, max(30, _MOST_POINTS // max(1, num_lines)))


def style(index: int) -> tuple[str, str]:
    """Returns colour and dashes of the line of that number."""
    dashes = index // len(COLORS) % len(_STYLES)
    return COLORS[index % len(COLORS)], _STYLES[dashes]


def draw(
    panel: Panel,
    lines: Sequence[Line],
    most: int,
    has_legend: bool = True,
) -> str:
    """Returns an `<svg>` element.

    Args:
        panel: What it shows, and on which axis.
        lines: In the order of their colours.
        most: Points of one line.
        has_legend: Whether to name the lines, where there are several.
    """
    import matplotlib
    from matplotlib.figure import Figure

    # Matplotlib finds no ticks for an axis longer than float64 reaches.
    lines = [
        each._replace(values=np.clip(each.values, -_LARGEST, _LARGEST))
        for each in lines
    ]
    with matplotlib.rc_context(), warnings.catch_warnings():
        # Numbers near the ends of float64; what is drawn is right enough.
        warnings.simplefilter("ignore")
        # A page does not depend on the settings of who makes it.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS | {"svg.hashsalt": panel.title})
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        for index, line in enumerate(lines):
            _plot(axes, line, most, index)
        _scale(axes, lines, panel)
        if has_legend and len(lines) > 1:
            columns = len(lines) if len(lines) < 4 else 2
            figure.legend(loc="outside upper left", ncols=columns)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=_METADATA)
    return _inline(text.getvalue(), panel.title)


def _plot(axes: "Axes", line: Line, most: int, index: int) -> None:
    steps, values = thin.thin(line.steps, line.values, most)
    color, dashes = style(index)
    # A point between two gaps would not be seen as a line.
    marker = "o" if len(steps) <= _FEW else ""
    axes.plot(steps, values, dashes, c=color, marker=marker, label=line.label)


def _scale(axes: "Axes", lines: Sequence[Line], panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator
    from matplotlib.ticker import NullFormatter

    values = np.concatenate([line.values for line in lines])
    values = values[np.isfinite(values)]
    wide = len(values) > 0 and 0 < values.min() * _SPAN < values.max()
    if panel.from_zero:
        # 1 for a line of zeros, which has no height.
        axes.set_ylim(0, _MARGIN * max(values, default=0) or 1)
    elif wide:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(_percent if panel.is_share else _number)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(_number)
    axes.set_xlabel("step")


def _number(value: float, _: float = 0) -> str:
    """Returns `0.05`, `1,500`, `20k` or `1.5M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if size <= abs(value) < 1e12:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    whole = 1000 <= abs(value) < 1e4
    return f"{value:,.0f}" if whole else f"{value:.5g}"


def _percent(value: float, _: float = 0) -> str:
    return f"{100 * value:.4g} %"


def _inline(svg: str, title: str) -> str:
    """Makes part of a page of what was a file of its own."""
    svg = svg[svg.index("<svg") :]
    # Ids of groups would be those of the other charts too.
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    label = html.escape(title)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    # A hundredth of a unit is less than any screen shows.
    return re.sub(
        r' d="[^"]*"',
        lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]).replace(" \n", " "),
        svg,
    )
