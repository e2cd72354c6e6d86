"""Several runs on the same charts, and in what they differ."""

from collections.abc import Sequence
from typing import NamedTuple

from training.report import chart
from training.report import document
from training.report import facts
from training.report import panels
from training.report import thin
from training.report.facts import Record
from training.report.history import EVALUATOR
from training.report.history import History

_MOST = 40
# What is another one in each run, and says nothing.
_OWN = ("--model_dir", "command")
# Matplotlib's dashes in CSS, which has no line of dots and dashes.
_BORDERS = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "double"}
_EVALUATION = ("eval", EVALUATOR)


class _Chart(NamedTuple):
    title: str
    splits: Sequence[str]  # the first that a run has is drawn
    name: str


def render(histories: Sequence[History], records: Sequence[Record]) -> str:
    """Returns a page: the same for the same files.

    Args:
        histories: Metrics of each run, in the order of their colours.
        records: From run.json of each; empty: there is none.
    """
    labels = name_runs(histories)
    charts = _charts(histories)[:_MOST]
    most = chart.points_of_a_line(len(charts) * len(histories))
    parts = [
        _legend(labels, histories),
        "<h2>Last and best evaluation</h2>",
        _results(labels, histories),
        "<h2>Curves</h2>",
        document.grid(_figure(each, histories, most) for each in charts),
        document.note(thin.DESCRIPTION),
        "<h2>In what they differ</h2>",
        _differences(labels, records) or "<p>In nothing that is known.</p>",
    ]
    return document.document("Runs compared", parts)


def name_runs(histories: Sequence[History]) -> list[str]:
    """Returns the folders' names, or their paths if two have one name."""
    names = [history.name for history in histories]
    return [
        history.model_dir if names.count(history.name) > 1 else history.name
        for history in histories
    ]


def _charts(histories: Sequence[History]) -> list[_Chart]:
    """Returns the charts on which any run has a line, and none has two."""
    charts = []
    for name in _name_metrics(histories):
        charts.append(_Chart(f"{name}, evaluation", _EVALUATION, name))
        charts.append(_Chart(f"{name}, training", ("train",), name))
    titles = panels.TITLES | {
        name: f"share of the time: {title}"
        for name, title in panels.SHARES.items()
    }
    charts += [
        _Chart(title, ("train",), name) for name, title in titles.items()
    ]
    found = set().union(*(history.columns for history in histories))
    return [
        each
        for each in charts
        if any((split, each.name) in found for split in each.splits)
    ]


def _name_metrics(histories: Sequence[History]) -> list[str]:
    names = map(panels.name_metrics, histories)
    return list(dict.fromkeys(name for each in names for name in each))


def _figure(what: _Chart, histories: Sequence[History], most: int) -> str:
    lines = []
    for history in histories:
        found = [history.line(split, what.name) for split in what.splits]
        line = next((each for each in found if len(each[0])), found[0])
        lines.append(chart.Line("", *line))
    panel = panels.describe(what.title, what.name)
    # The colours are told once, above all charts.
    svg = chart.draw(panel, lines, most, has_legend=False)
    return document.figure(what.title, svg, "")


def _legend(labels: Sequence[str], histories: Sequence[History]) -> str:
    rows = []
    for index, (label, history) in enumerate(
        zip(labels, histories, strict=True)
    ):
        color, dashes = chart.style(index)
        key = document.line_key(color, _BORDERS[dashes])
        name = document.Markup(key + document.escape(label))
        rows.append((name, f"step {history.step:,}"))
    return document.table(rows)


def _results(labels: Sequence[str], histories: Sequence[History]) -> str:
    names = _name_metrics(histories)
    rows = []
    for label, history in zip(labels, histories, strict=True):
        row = [label]
        for name in names:
            judged = history.best(name)
            row.append(document.number(judged.last) if judged else "none")
            row.append(
                f"{document.number(judged.best)} at {judged.step:,}"
                if judged
                else "none"
            )
        rows.append(row)
    head = [word for name in names for word in (name, f"best {name}")]
    return document.table(rows, ["run", *head], "numbers")


def _differences(labels: Sequence[str], records: Sequence[Record]) -> str:
    """Returns a row for each flag and fact that is not the same in all."""
    columns = []
    for record in records:
        values = facts.settings(record).items()
        flags = {f"--{name}": facts.word(value) for name, value in values}
        columns.append(flags | facts.machine(record))
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column):
        row = [column.get(name, "unknown") for column in columns]
        if len(set(row)) > 1 and name not in _OWN:
            rows.append([name, *row])
    return document.table(rows, ["", *labels], "numbers")
