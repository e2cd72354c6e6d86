"""Writes README's table of results from `results.json`.

    python -m benchmarks._table

It stands between two marks in README.md; what is around them stays.
"""

import itertools
import json
import operator
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.__main__ import RESULTS

_SIGNS = {
    "≥": operator.ge,
    ">": operator.gt,
    "≤": operator.le,
    "<": operator.lt,
}
_NARROW = 0.08

README = RESULTS.parent.parent / "README.md"
BEGIN = "<!-- from benchmarks/results.json; make bench -->"
END = "<!-- end of the figures -->"


class Row(NamedTuple):
    """One line of the table: a question, asked of one or several."""

    what: str
    keys: dict[str, str]
    """Of whom → the key of the figure."""
    sign: str = ""
    """How the figures relate to the bars: ≥, >, ≤, <."""
    bars: tuple[float, ...] = ()
    """What the figures are to reach, in the same order."""


_BOTH = {"MLP": "mlp", "CNN": "cnn"}


def _of(key: str, models: Mapping[str, str]) -> dict[str, str]:
    return {name: key.format(model) for name, model in models.items()}


ROWS = (
    Row(
        "steps/s ÷ those of the bare step, fed from a constant",
        _of("loop.{}.vs_bare", {**_BOTH, "equilibrium": "equilibrium"}),
        "≥",
        (0.80, 0.95, 0.95),
    ),
    Row("÷ Keras `fit`", _of("loop.{}.vs_fit", _BOTH), "≥", (1.4, 1.05)),
    Row(
        "÷ `fit` with as many steps a call",
        _of("loop.{}.vs_fit_best", _BOTH),
        "≥",
        (1.0, 0.98),
    ),
    Row("÷ Orbit", _of("loop.{}.vs_orbit", _BOTH), "≥", (1.0, 1.0)),
    Row(
        "two workers ÷ the same without exchange",
        _of("scaling.{}.vs_ideal", _BOTH),
        "≥",
        (0.33, 0.70),
    ),
    Row(
        "two workers ÷ PyTorch DDP's",
        _of("scaling.{}.vs_torch", _BOTH),
        ">",
        (1, 1),
    ),
    Row(
        "exchange of the MLP's gradients: Keras's time, float32, ÷ ours",
        {
            "bfloat16": "communication.mlp.vs_keras",
            "float32": "communication.mlp.vs_keras_float32",
        },
        "≥",
        (2,),
    ),
    Row(
        "process start to first step ÷ that of a `fit` script",
        {"": "startup.vs_fit"},
        "≤",
        (1.2,),
    ),
    Row(
        "MB grown from step 1,000 to 10,000",
        {"default model": "memory.growth_mb"},
        "<",
        (20,),
    ),
    Row(
        "3,000 products of 100×100 ÷ other ways' speed",
        {
            "the memory itself": "layers.batched_mat_vec.vs_memory",
            "the best": "layers.batched_mat_vec.vs_best",
            "eager loop": "layers.batched_mat_vec.vs_python_loop",
        },
        "≥",
        (0.45, 0.9, 50),
    ),
    Row(
        "memory of `FixedPoint` at 100 iterations ÷ at 10",
        {
            "implicit": "layers.fixed_point.implicit.memory_ratio",
            "unrolled": "layers.fixed_point.unrolled.memory_ratio",
        },
    ),
    Row(
        "speed kept with checkpoints",
        {
            "default model, every 5 s": "checkpoint.default.vs_none",
            "60 M weights, 60 s": "checkpoint.large.vs_none",
        },
    ),
    Row(
        "order, shuffle and padding ÷ the CNN's step",
        {"": "input.order_share"},
        "<",
        (0.03,),
    ),
    Row(
        "examples/s read ÷ the CNN's",
        {"`tfds`": "input.tfds.vs_cnn"},
        "≥",
        (10,),
    ),
)


def make(results: Mapping[str, float | str]) -> str:
    """Returns the table of `results` in Markdown, with its two marks.

    What was not measured is said to be so, as is a bar that was missed.
    """
    last = results["commit"]
    older = [
        f"{key.removesuffix('.commit')} at {commit}"
        for key, commit in results.items()
        if key.endswith(".commit") and commit != last
    ]
    commits = ", ".join([f"commit {last}", *older])
    lines = [
        BEGIN,
        f"{results['processor']}, {str(results['time'])[:10]}, {commits}; "
        "medians (90 % interval):",
        "",
        "| ratio | measured | bar |",
        "|---|---|---|",
    ]
    for row in ROWS:
        pairs = itertools.zip_longest(row.keys.items(), row.bars)
        cells = [
            f"{of} {_cell(results, key, row.sign, bar)}".strip()
            for (of, key), bar in pairs
        ]
        bars = f"{row.sign} {'; '.join(map(str, row.bars))}".strip()
        lines.append(f"| {row.what} | {'; '.join(cells)} | {bars} |")
    return "\n".join([*lines, END])


def _cell(
    results: Mapping[str, float | str], key: str, sign: str, bar: float | None
) -> str:
    if key not in results:
        return "not measured"
    found = float(results[key])
    low, high = (
        float(results.get(f"{key}_{end}", found)) for end in ("low", "high")
    )
    words = _figure(found)
    if low < high:
        words += f" ({_figure(low)}-{_figure(high)})"
    if bar is not None and not _holds(found, low, high, sign, bar):
        words += f", **missed by {_figure(abs(found - bar))}**"
    return words


def _holds(
    found: float, low: float, high: float, sign: str, bar: float
) -> bool:
    """Returns whether a bar is held.

    The median reaches it, or a narrow interval contains it.
    """
    reached = _SIGNS[sign](found, bar)
    return reached or (low <= bar <= high and high - low < _NARROW)


def replace(text: str, table: str) -> str:
    """Returns `text` with the table between the marks replaced.

    Raises:
        ValueError: if the marks are not there.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text lacks the marks {BEGIN} and {END}.")
    return before + table + after


def _figure(number: float) -> str:
    digits = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 3
    return f"{number:.{digits}f}"


def main() -> None:
    """Rewrites README.md."""
    table = make(json.loads(RESULTS.read_text()))
    README.write_text(replace(README.read_text(), table))


if __name__ == "__main__":
    main()
