"""rehearsal.html: what rehearsal.json says, to look at. One file, no script."""

import html
import itertools
import math
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from rehearsal import roofline
from rehearsal.plan import in_words

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto;
       padding: 0 1em; color: #1a1a1a; background: #fff }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: .25em .8em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child { text-align: left }
.bar { display: flex; height: 1.4em; background: #eee; margin: .2em 0 1em }
.bar div { overflow: hidden; white-space: nowrap; font-size: 12px;
           padding-left: .3em }
.held { background: #7aa6d8 } .temporary { background: #e3a857 }
.program { background: #a9c47f }
.over { background: #d9534f; color: #fff }
.core td { border: 2px solid #fff; background: #dbe8f5; text-align: center;
           min-width: 6em; height: 3.5em }
"""
_MOST_ROWS = 20


def render(content: Mapping[str, Any]) -> str:
    """Returns the page.

    Args:
        content: Of rehearsal.json.
    """
    topologies = content["topologies"]
    compiled = [each for each in topologies if "flops" in each]
    parts = [
        _verdict(content),
        "<h2>Topologies</h2>",
        _topologies(topologies),
        *("<p>" + html.escape(text) + "</p>" for text in roofline.ASSUMPTIONS),
        "<h2>Memory of one core</h2>",
        "<p>Held: weights, optimizer and batch. Temporary: what a step "
        "needs in between. Program: the code.</p>",
        *map(_memory, topologies),
        "<h2>Which core of a replica holds which part of the input</h2>",
        *_inputs(content),
    ]
    for each in compiled[:1]:
        parts += [
            f"<h2>Largest buffers on {html.escape(each['name'])}</h2>",
            _buffers(each["largest_buffers"]),
            f"<h2>Collectives on {html.escape(each['name'])}</h2>",
            _collectives(each["collectives"]),
        ]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Rehearsal</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>Rehearsal</h1>\n{body}\n</body></html>\n"
    )


def _verdict(content: Mapping[str, Any]) -> str:
    run = content["run"]
    if not run:
        return "<p>Compiled only: no step was run.</p>"
    # What is no number is None in JSON.
    loss, weight = (
        math.inf if run[key] is None else run[key]
        for key in ("loss_difference", "weight_difference")
    )
    wrong = run["misplaced"] or run["apart"]
    same = max(loss, weight) <= run["tolerance"] and not wrong
    return (
        f"<p><b>{'The same numbers' if same else 'Not the same numbers'}</b> "
        f"on {run['replicas']} replicas of {run['devices']} devices as in the "
        f"ordinary step, after {run['steps']} steps: largest difference of a "
        f"loss {loss:.1e}, of a weight {weight:.1e} "
        f"({html.escape(run['weight'])}); allowed {run['tolerance']:.0e}. "
        f"{html.escape(wrong)}</p>"
    )


def _topologies(topologies: Sequence[Mapping[str, Any]]) -> str:
    head = (
        "TPU",
        "replicas x cores",
        "batch of a replica",
        "bytes of a core",
        "fits",
        "FLOP of a core",
        "step, estimated",
        "examples/s, estimated",
        "scaling",
    )
    compiled = [each for each in topologies if "step_secs" in each]
    scaling = roofline.scaling([_point(each) for each in compiled])
    of = {
        each["name"]: value
        for each, value in zip(compiled, scaling, strict=True)
    }
    return _table(head, (_row(each, of) for each in topologies))


def _point(each: Mapping[str, Any]) -> roofline.Point:
    plan = each["plan"]
    cores = plan["replicas"] * plan["devices_per_replica"]
    return roofline.Point(cores, plan["global_batch"], each["step_secs"])


def _row(
    each: Mapping[str, Any], scaling: Mapping[str, float]
) -> tuple[str, ...]:
    plan = each["plan"]
    known = "step_secs" in each
    seconds = each.get("step_secs", 0.0)
    return (
        each["name"],
        f"{plan['replicas']} x {plan['devices_per_replica']}",
        str(plan["global_batch"] // plan["replicas"]),
        in_words(each["bytes_per_core"]),
        "yes" if each["fits"] else "no",
        f"{each['flops']:.2e}" if known else "",
        f"{seconds * 1e3:.3g} ms" if known else "",
        f"{plan['global_batch'] / seconds:,.0f}" if known else "",
        f"{scaling[each['name']]:.0%}" if known else "",
    )


def _memory(each: Mapping[str, Any]) -> str:
    """Returns a bar as long as the memory of a core."""
    available = each["bytes_available"]
    memory = each.get("memory")
    if memory:
        pieces = {
            "held": memory["arguments"] + memory["outputs"] - memory["aliased"],
            "temporary": memory["temporary"],
            "program": memory["generated_code"],
        }
    else:
        pieces = {"over": min(each["bytes_per_core"], available)}
    divs = "".join(
        f'<div class="{kind}" style="width:{100 * size / available:.2f}%">'
        f"{kind} {in_words(size)}</div>"
        for kind, size in pieces.items()
    )
    text = (
        f"{each['name']}: {in_words(each['bytes_per_core'])} of "
        f"{in_words(available)}"
    )
    return f'<div>{html.escape(text)}</div><div class="bar">{divs}</div>'


def _inputs(content: Mapping[str, Any]) -> Iterable[str]:
    devices = content["devices_per_replica"]
    for shape in content["features"]:
        partition = content["partition_dimensions"] or [1] * len(shape)
        if max(partition) == 1:
            yield (
                f"<p>Each of {devices} devices has the whole "
                f"{html.escape(str(shape))}.</p>"
            )
            continue
        yield f"<p>Features {html.escape(str(shape))}, one replica:</p>"
        yield _cores(shape, partition)


def _cores(shape: Sequence[int], partition: Sequence[int]) -> str:
    """Returns a grid: the last axis that is split goes to the right."""
    places = itertools.product(*(range(parts) for parts in partition))
    cells = [
        f"<td>core {core}<br>{_slices(shape, partition, place)}</td>"
        for core, place in enumerate(places)
    ]
    width = next(parts for parts in reversed(partition) if parts > 1)
    rows = [cells[i : i + width] for i in range(0, len(cells), width)]
    lines = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<table class="core">{lines}</table>'


def _slices(
    shape: Sequence[int], partition: Sequence[int], place: Sequence[int]
) -> str:
    words = []
    for size, parts, i in zip(shape, partition, place, strict=True):
        part = size // parts
        words.append(f"{i * part}:{(i + 1) * part}" if parts > 1 else ":")
    return f"[{', '.join(words)}]"


def _buffers(buffers: Sequence[Mapping[str, Any]]) -> str:
    rows = (
        (each["name"] or each["shape"], each["layer"], in_words(each["bytes"]))
        for each in buffers
    )
    return _table(("buffer", "layer", "bytes of a core"), rows)


def _collectives(collectives: Sequence[Mapping[str, Any]]) -> str:
    largest = sorted(collectives, key=lambda each: -each["bytes"])
    rows = (
        (
            each["kind"],
            ", ".join(each["layers"]),
            each["direction"],
            in_words(each["bytes"]),
        )
        for each in largest[:_MOST_ROWS]
    )
    return _table(("kind", "layers", "direction", "bytes of a core"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        for tag, row in [("th", head), *(("td", row) for row in rows)]
    ]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
