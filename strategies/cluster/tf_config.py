"""`TF_CONFIG`: which workers are in the job, and which one this process is.

    {"cluster": {"worker": ["host1:2222", "host2:2222"]},
     "task": {"type": "worker", "index": 0}}

One task of type `chief` may stand before the workers; without it worker 0 is
the chief. One of type `evaluator` may stand beside them: it takes no part in
training. TensorFlow reads the variable itself when the strategy is created,
but takes several mistakes for "one worker" or waits for ever, so it is
checked here first. No TensorFlow in this file: a mistake shows at once.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from errors import RequestError

EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a job, and which of them this process is."""

    workers: tuple[str, ...]
    """Addresses, `host:port`, in TensorFlow's order: the chief comes first."""
    task_type: str
    """`chief` or `worker`, as in `TF_CONFIG`."""
    index: int
    """Number of this process among those of its type, as in `TF_CONFIG`."""
    has_chief: bool = False
    """Whether `workers[0]` has the type `chief`."""

    @property
    def num_workers(self) -> int:
        """Processes in the job, the chief included."""
        return len(self.workers)

    @property
    def position(self) -> int:
        """Place of this process in `workers`."""
        is_after_chief = self.has_chief and self.task_type == "worker"
        return self.index + int(is_after_chief)

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that keeps files."""
        return self.position == 0

    @property
    def address(self) -> str:
        """`host:port` of this process."""
        return self.workers[self.position]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The workers in words, such as `worker 1 (host2:2222)`."""
        names = [f"worker {i}" for i in range(self.num_workers)]
        if self.has_chief:
            names = ["chief 0", *names]
        return tuple(
            f"{name} ({address})"
            for name, address in zip(names, self.workers, strict=False)
        )


def read(environ: Mapping[str, str]) -> Cluster | None:
    """Reads `TF_CONFIG`.

    Args:
        environ: Environment variables.

    Returns:
        The cluster; None if `TF_CONFIG` is not set.

    Raises:
        RequestError: if it is set but does not describe a chief and workers,
            each with an address of its own, and which of them this is.
    """
    text = environ.get("TF_CONFIG")
    if text is None:
        return None
    if is_evaluator(environ):
        raise RequestError(
            "TF_CONFIG: task.type 'evaluator' is no worker; allowed in "
            "training are chief and worker."
        )
    config = _parse(text)
    addresses = _addresses(_member(config, "cluster"))
    # Not in the cluster that trains, which must not wait for it.
    addresses.pop("evaluator", None)
    task_type, index = _task(_member(config, "task"), addresses)
    workers = (*addresses.get("chief", ()), *addresses.get("worker", ()))
    seen = set()
    for address in workers:
        if address.lower() in seen:
            raise RequestError(
                f"TF_CONFIG: cluster names {address!r} twice; every worker "
                "needs an address of its own."
            )
        seen.add(address.lower())
    return Cluster(workers, task_type, index, "chief" in addresses)


def write(cluster: Cluster) -> str:
    """Returns the `TF_CONFIG` of which `read` makes `cluster`."""
    chief, workers = int(cluster.has_chief), cluster.workers
    parts = {"chief": workers[:chief], "worker": workers[chief:]}
    addresses = {task_type: part for task_type, part in parts.items() if part}
    task = {"type": cluster.task_type, "index": cluster.index}
    return json.dumps({"cluster": addresses, "task": task})


def is_evaluator(environ: Mapping[str, str]) -> bool:
    """Whether `TF_CONFIG` makes this process the evaluator.

    It talks to nobody, so the cluster may be left out.

    Raises:
        RequestError: if `TF_CONFIG` is wrong, or there are two evaluators.
    """
    text = environ.get("TF_CONFIG", "")
    if not text.strip():
        return False
    config = _parse(text)
    task = config.get("task")
    if not isinstance(task, dict) or task.get("type") != "evaluator":
        return False
    if "cluster" in config:
        _addresses(_member(config, "cluster"))
    _check_index(task.get("index"), "evaluator", 1)
    return True


def _parse(text: str) -> dict[str, Any]:
    if not text.strip():
        raise RequestError(
            f"TF_CONFIG is empty: unset it or write it as {EXAMPLE}."
        )
    try:
        config = json.loads(text)
    # RecursionError: brackets within brackets, without end.
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"TF_CONFIG is not JSON ({error}): write it as {EXAMPLE}."
        ) from error
    if not isinstance(config, dict):
        raise RequestError(
            f"TF_CONFIG is {json.dumps(config)}, not a JSON object: write it "
            f"as {EXAMPLE}."
        )
    return config


def _member(config: dict[str, Any], key: str) -> dict[str, Any]:
    """Returns a member of `TF_CONFIG` that must be a non-empty object."""
    value = config.get(key)
    if not isinstance(value, dict) or not value:
        found = f"is {json.dumps(value)}" if key in config else "is missing"
        raise RequestError(
            f"TF_CONFIG: {key} {found}, must be an object: write TF_CONFIG "
            f"as {EXAMPLE}."
        )
    return value


def _check_type(task_type: Any, field: str) -> None:
    if task_type == "ps":
        raise RequestError(
            f"TF_CONFIG: {field} 'ps' is not supported: parameter servers "
            "train asynchronously, so the result would depend on the number "
            "of workers; make every process a worker."
        )
    if task_type == "master":
        raise RequestError(
            f"TF_CONFIG: {field} 'master' is the old name; rename it to chief."
        )
    if task_type not in ("chief", "worker", "evaluator"):
        raise RequestError(
            f"TF_CONFIG: {field} {task_type!r} is unknown; allowed are chief, "
            "worker and evaluator."
        )


def _addresses(cluster: dict[str, Any]) -> dict[str, list[str]]:
    """Returns task type → addresses, checked."""
    for task_type, addresses in cluster.items():
        _check_type(task_type, "in cluster, task type")
        field = f"cluster.{task_type}"
        if not isinstance(addresses, list) or not addresses:
            raise RequestError(
                f"TF_CONFIG: {field}={json.dumps(addresses)} must be a list "
                'of one or more addresses, such as ["host1:2222"].'
            )
        for i, address in enumerate(addresses):
            _check_address(address, f"{field}[{i}]")
    for task_type in ("chief", "evaluator"):
        count = len(cluster.get(task_type, ()))
        if count > 1:
            raise RequestError(
                f"TF_CONFIG: cluster.{task_type} names {count} addresses, but "
                f"there is one {task_type}; list the others as worker."
            )
    return dict(cluster)


def _check_address(address: Any, field: str) -> None:
    match = isinstance(address, str) and _ADDRESS.fullmatch(address)
    if not match or not 1 <= int(match[2]) <= 65535:
        raise RequestError(
            f"TF_CONFIG: {field}={json.dumps(address)} must be host:port "
            "without a scheme, the port from 1 to 65535, such as "
            '"host1:2222" or "[::1]:2222".'
        )


def _task(
    task: dict[str, Any], addresses: dict[str, list[str]]
) -> tuple[str, int]:
    for key in ("type", "index"):
        if key not in task:
            raise RequestError(
                f"TF_CONFIG: task.{key} is missing: write task as "
                '{"type": "worker", "index": 0}.'
            )
    task_type, index = task["type"], task["index"]
    _check_type(task_type, "task.type")
    if task_type not in addresses:
        raise RequestError(
            f"TF_CONFIG: task.type={task_type!r}, but cluster has no "
            f"{task_type}; allowed is {' or '.join(sorted(addresses))}."
        )
    _check_index(index, task_type, len(addresses[task_type]))
    return task_type, index


def _check_index(index: Any, task_type: str, count: int) -> None:
    # bool is an int to Python, and TensorFlow would take true for 1.
    if type(index) is not int or not 0 <= index < count:
        raise RequestError(
            f"TF_CONFIG: task.index={json.dumps(index)} must be an integer "
            f"from 0 to {count - 1}, a position in cluster.{task_type}."
        )
