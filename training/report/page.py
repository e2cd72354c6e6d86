"""report.html: one run to look at."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from training import checkpoint_files
from training import files
from training.report import chart
from training.report import document
from training.report import facts
from training.report import panels
from training.report import thin
from training.report.facts import Record
from training.report.history import History

_NAME = "report.html"
_TILES = 4
# Measure of the loop → its title, what of all its values is told, and how to
# get that.
_IN_SHORT: Mapping[str, tuple[str, str, Callable[[np.ndarray], float]]] = {
    "examples_per_sec": ("examples/s", "median", np.median),
    "goodput": ("goodput", "of the time so far", lambda values: values[-1]),
    "mfu": ("MFU", "median", np.median),
    "flops_per_step": ("FLOPs of a step", "", np.max),
    "peak_memory_mb": ("peak memory, MB", "", np.max),
}
_FILES = ("export/", "summaries/", "train.log", "metrics.jsonl", "run.json")
_LAST_STEPS = 10
_NO_RECORD = "<p>run.json is not there or cannot be read.</p>"


def write(history: History) -> str:
    """Writes the page into the folder of the run; returns its path.

    Whoever reads it meanwhile sees the page before, whole.

    Args:
        history: Up to date.

    Raises:
        OSError, tf.errors.OpError: if it cannot be written.
    """
    model_dir = history.model_dir
    record = facts.read(model_dir)
    text = render(history, record, list_files(model_dir, record))
    path = tf.io.gfile.join(model_dir, _NAME)
    files.write(path, text)
    return path


def list_files(model_dir: str, record: Record) -> dict[str, Sequence[int]]:
    """Returns what there is in the folder to link to: name → steps in it.

    The export, made after the last page, counts as there if it is asked for.
    """
    steps = {
        f"{name}/": checkpoint_files.list_steps(model_dir, name)
        for name in (checkpoint_files.NEWEST, checkpoint_files.BEST)
    }
    found: dict[str, Sequence[int]] = {
        name: each for name, each in steps.items() if each
    }
    for name in _FILES:
        asked = name == "export/" and facts.settings(record).get("export")
        if asked or tf.io.gfile.exists(tf.io.gfile.join(model_dir, name)):
            found[name] = ()
    return found


def render(
    history: History,
    record: Record,
    links: Mapping[str, Sequence[int]],
) -> str:
    """Returns the page: the same for the same files.

    Args:
        history: Of the run.
        record: From run.json; empty: there is none that can be read.
        links: From `list_files`.
    """
    shown, left_out = panels.make(history)
    most = chart.points_of_a_line(sum(len(each.lines) for each in shown))
    parts = [
        f"<p>{document.escape(facts.summary(record))}</p>",
        _summary(history, record),
        "<h2>Curves</h2>",
        document.grid(_figure(history, each, most) for each in shown),
        *_left_out(left_out),
        document.note(thin.DESCRIPTION),
        "<h2>Config</h2>",
        *_config(record),
        "<h2>Machine and versions</h2>",
        document.table([*facts.machine(record).items(), *facts.starts(record)])
        or _NO_RECORD,
        "<h2>Files</h2>",
        document.table(_links(links)),
    ]
    return document.document(history.name, parts)


def _summary(history: History, record: Record) -> str:
    end = facts.settings(record).get("train_steps")
    of_end = f"of {end:,}" if type(end) is int else ""
    found = {"step": (f"{history.step:,}", of_end)}
    for name in panels.name_metrics(history)[:_TILES]:
        judged = history.best(name)
        if judged:
            best = document.number(judged.best)
            note = f"best {best} at step {judged.step:,}"
            found[name] = (document.number(judged.last), note)
    for name, (title, note, reduce) in _IN_SHORT.items():
        _, values = history.line("train", name)
        values = values[np.isfinite(values)]
        if len(values):
            write = _writer(name in panels.PERCENT)
            found[title] = (write(reduce(values)), note)
    return document.tiles(found)


def _figure(history: History, panel: panels.Panel, most: int) -> str:
    lines = [
        chart.Line(label, *history.line(*key))
        for label, key in panel.lines.items()
    ]
    svg = chart.draw(panel, lines, most)
    write = _writer(panel.is_share)
    notes = []
    for line in lines:
        label = f"{line.label} " if len(lines) > 1 else "last "
        notes.append(f"{label}{write(line.values[-1])}")
        gaps = line.steps[~np.isfinite(line.values)]
        if len(gaps):
            notes.append(f"not finite: {len(gaps):,}, from step {gaps[0]:,}")
    if len(lines) == len(panels.SHARES):
        rest = 1 - sum(line.values[-1] for line in lines)
        notes.append(f"rest {document.percent(rest)}")
    return document.figure(panel.title, svg, " · ".join(notes))


def _writer(is_share: bool) -> Callable[[float], str]:
    return document.percent if is_share else document.number


def _left_out(titles: Sequence[str]) -> Iterable[str]:
    if titles:
        names = facts.word(list(titles))
        yield document.note(f"{len(titles)} more are in metrics.jsonl: {names}")


def _config(record: Record) -> Iterable[str]:
    values = facts.settings(record)
    if not values:
        yield _NO_RECORD
        return
    rows = {name: (f"--{name}", facts.word(values[name])) for name in values}
    first = [rows.pop(name) for name in facts.changed(record)]
    yield document.table(first, kind="changed")
    title = "The defaults" if first else "All values"
    is_open = "" if first else " open"
    yield f"<details{is_open}><summary>{title}</summary>"
    yield document.table(rows.values())
    yield "</details>"


def _links(links: Mapping[str, Sequence[int]]) -> Iterable[Sequence[object]]:
    for name, steps in links.items():
        note = ", ".join(f"{step:,}" for step in steps[-_LAST_STEPS:])
        yield document.link(name, name), f"step {note}" if steps else ""
