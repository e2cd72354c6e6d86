"""What run.json says of a run, in words.

The file may be of another version or damaged: what is not as expected is left
out.
"""

import json
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from training.report import document

Record = Mapping[str, Any]  # content of run.json; empty: there is none

_LAST_STARTS = 10
_LONGEST_WORD = 400


def read(model_dir: str) -> Record:
    """Returns what run.json says; nothing if it is not there or damaged."""
    path = tf.io.gfile.join(model_dir, "run.json")
    try:
        with tf.io.gfile.GFile(path) as file:
            content = json.loads(file.read())
    except (tf.errors.OpError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def settings(record: Record) -> dict[str, Any]:
    """Returns flag → value of all groups."""
    groups = _mapping(record, "config").values()
    return {
        name: value
        for group in groups
        if isinstance(group, Mapping)
        for name, value in group.items()
    }


def changed(record: Record) -> list[str]:
    """Returns the flags that are not at their defaults."""
    given = record.get("flags")
    # `--name=value` each.
    words = map(str, given) if isinstance(given, list) else ()
    names = [each.removeprefix("--").partition("=")[0] for each in words]
    known = settings(record)
    return list(dict.fromkeys(name for name in names if name in known))


def machine(record: Record) -> dict[str, str]:
    """Returns on what and with what a run was made, in words."""
    strategy, batch = _mapping(record, "strategy"), _mapping(record, "batch")
    git = _mapping(record, "git")
    changes = ", with changes" if git.get("dirty") else ""
    found = {
        "strategy": strategy.get("name"),
        "replicas": strategy.get("replicas"),
        "workers": strategy.get("workers"),
        "devices": strategy.get("devices"),
        "global batch": batch.get("global"),
        "batch of a replica": batch.get("per_replica"),
        "parameters": record.get("parameters"),
        **_mapping(record, "versions"),
        "commit": git.get("commit") and f"{git['commit']}{changes}",
        "command": record.get("command"),
    }
    return {
        name: f"{value:,}" if type(value) is int else _spaced(value)
        for name, value in found.items()
        if value is not None
    }


def summary(record: Record) -> str:
    """Returns the run in one line, with what of it is known."""
    flags, strategy = settings(record), _mapping(record, "strategy")
    words = [flags.get("model"), "on", flags.get("dataset")]
    replicas, count = strategy.get("replicas"), record.get("parameters")
    parts = [
        " ".join(map(str, words)) if None not in words else "",
        f"{count:,} parameters" if type(count) is int else "",
        str(strategy.get("name", "")),
        f"{replicas} replica{'s' * (replicas != 1)}" if replicas else "",
    ]
    return " · ".join(filter(None, parts))


def starts(record: Record) -> Iterable[tuple[str, str]]:
    """Yields when the run was begun, continued and ended."""
    begun = record.get("starts")
    begun = begun if isinstance(begun, list) else []
    for number, start in list(enumerate(begun, 1))[-_LAST_STARTS:]:
        if isinstance(start, Mapping):
            time = document.moment(start.get("time"))
            yield f"start {number}", f"{time}, from step {start.get('step')}"
    ended = _mapping(record, "ended")
    if ended:
        time = document.moment(ended.get("time"))
        yield "end", f"{time}, at step {ended.get('step')}"


def word(value: Any) -> str:
    """Returns a value as it would stand on the command line."""
    if isinstance(value, list):
        text = ",".join(map(str, value))
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = "unset" if value is None or value == "" else str(value)
    return text if len(text) < _LONGEST_WORD else f"{text[:_LONGEST_WORD]} …"


def _spaced(value: Any) -> str:
    if isinstance(value, list):
        return word(" ".join(map(str, value)))
    return word(value)


def _mapping(record: Record, key: str) -> Mapping[str, Any]:
    value = record.get(key)
    return value if isinstance(value, Mapping) else {}
