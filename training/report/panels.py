"""Which charts there are: from the names of the metrics.

What an evaluation measures has a chart each, with the training's line on it.
What a loop says of itself follows, then what layers and others report.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

from training.report.history import EVALUATOR
from training.report.history import SPLITS
from training.report.history import History

SHARES = {
    "goodput": "steps",
    "input_wait_share": "waiting for input",
    "eval_share": "evaluation",
    "checkpoint_share": "checkpoints",
}
TITLES = {
    "learning_rate": "learning rate",
    "examples_per_sec": "examples/s",
    "gradient_norm": "norm of the gradients",
    "weight_norm": "norm of the weights",
    "peak_memory_mb": "peak memory, MB",
    "mfu": "model FLOP utilization",
}
PERCENT = {*SHARES, "mfu"}
# What is little or much in comparison with nothing.
_FROM_ZERO = {*PERCENT, "examples_per_sec", "peak_memory_mb"}
# What is the same all the time, or the same as `examples_per_sec` but for a
# factor.
_HIDDEN = {
    "examples",
    "examples_per_sec_per_replica",
    "flops_per_step",
    "steps_per_sec",
}
_KNOWN = {*TITLES, *SHARES, *_HIDDEN}
# What layers that iterate tell of: it has no best.
_OF_LAYERS = ("_iterations", "_residual", "_converged")
_MOST = 40


class Panel(NamedTuple):
    """One chart."""

    title: str
    lines: Mapping[str, tuple[str, str]]  # label → (split, name)
    is_share: bool = False
    """Whether values are parts of 1, shown as percents."""
    from_zero: bool = False
    """Whether the axis begins at 0."""


def name_metrics(history: History) -> list[str]:
    """Returns what judges the model, the loss first."""
    names = history.names(("eval", EVALUATOR)) or history.names(("train",))
    return sorted(
        (n for n in names if n not in _KNOWN and not n.endswith(_OF_LAYERS)),
        key=lambda name: name != "loss",
    )


def make(history: History) -> tuple[list[Panel], list[str]]:
    """Returns the charts of a run, and the titles of those left out.

    There are at most 40: a page stays small and can be read to its end.
    """
    metrics = name_metrics(history)
    panels = [_panel(history, name, name, SPLITS) for name in metrics]
    panels += [
        _panel(history, title, name, ("train",))
        for name, title in TITLES.items()
    ]
    shares = {
        label: ("train", name)
        for name, label in SHARES.items()
        if ("train", name) in history.columns
    }
    panels.append(Panel("where the time went", shares, True, True))
    panels += [
        _panel(history, name, name, SPLITS)
        for name in history.names()
        if name not in metrics and name not in _KNOWN
    ]
    panels = [each for each in panels if each.lines]
    return panels[:_MOST], [each.title for each in panels[_MOST:]]


def _panel(
    history: History, title: str, name: str, splits: Iterable[str]
) -> Panel:
    """Returns the chart of a metric, with those of the splits that have it."""
    lines = {
        split: (split, name)
        for split in splits
        if (split, name) in history.columns
    }
    return describe(title, name)._replace(lines=lines)


def describe(title: str, name: str) -> Panel:
    """Returns an empty chart of a metric."""
    return Panel(title, {}, name in PERCENT, name in _FROM_ZERO)
