"""`TF_CONFIG`: which workers are in the job, and which one this process is.

    {"cluster": {"worker": ["host1:2222", "host2:2222"]},
     "task": {"type": "worker", "index": 0}}

One task of type `chief` may stand before the workers; without it worker 0 is
the chief. TensorFlow reads the variable itself when the strategy is created,
but takes several mistakes for "one worker" or waits for ever, so it is
checked here first. No TensorFlow in this file: a mistake shows at once.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from errors import RequestError

_EXAMPLE = (
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


def check(strategy: str, environ: Mapping[str, str]) -> Cluster | None:
    """Reads the cluster and compares it with the strategy that was asked for.

    Args:
        strategy: Value of `--strategy`.
        environ: Environment variables.

    Returns:
        The cluster; None if there is none and none is needed.

    Raises:
        RequestError: as `read` and `require`, and for several workers under a
            strategy that knows only one.
    """
    if strategy == "multi_worker_mirrored":
        return require(environ)
    cluster = read(environ)
    if cluster and cluster.num_workers > 1:
        raise RequestError(
            f"--strategy={strategy}: TF_CONFIG names {cluster.num_workers} "
            "workers, and each would train alone into the same folder; use "
            "--strategy=multi_worker_mirrored or unset TF_CONFIG."
        )
    return cluster


def require(environ: Mapping[str, str]) -> Cluster:
    """Reads the cluster that a multi-worker strategy cannot do without.

    Raises:
        RequestError: as `read`, and if `TF_CONFIG` is not set.
    """
    cluster = read(environ)
    if cluster is None:
        raise RequestError(
            "--strategy=multi_worker_mirrored: TF_CONFIG is not set, so this "
            f"would be a lone worker; set it in every process, as in {_EXAMPLE}"
            ", or use --strategy=mirrored."
        )
    return cluster


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
    config = _parse(text)
    cluster = _member(config, "cluster")
    addresses = _addresses(cluster)
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


def _parse(text: str) -> dict[str, Any]:
    if not text.strip():
        raise RequestError(
            f"TF_CONFIG is empty: unset it or write it as {_EXAMPLE}."
        )
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise RequestError(
            f"TF_CONFIG is not JSON ({error}): write it as {_EXAMPLE}."
        ) from error
    if not isinstance(config, dict):
        raise RequestError(
            f"TF_CONFIG is {text}, not a JSON object: write it as {_EXAMPLE}."
        )
    return config


def _member(config: dict[str, Any], key: str) -> dict[str, Any]:
    """Returns a member of `TF_CONFIG` that must be a non-empty object."""
    value = config.get(key)
    if not isinstance(value, dict) or not value:
        found = f"is {json.dumps(value)}" if key in config else "is missing"
        raise RequestError(
            f"TF_CONFIG: {key} {found}, must be an object: write TF_CONFIG "
            f"as {_EXAMPLE}."
        )
    return value


def _check_type(task_type: Any, field: str) -> None:
    if task_type in ("master", "ps", "evaluator"):
        raise RequestError(
            f"TF_CONFIG: {field} {task_type!r} is not supported; allowed are "
            "one chief and any number of workers."
        )
    if task_type not in ("chief", "worker"):
        raise RequestError(
            f"TF_CONFIG: {field} {task_type!r} is unknown; allowed are chief "
            "and worker."
        )


def _addresses(cluster: dict[str, Any]) -> dict[str, list[str]]:
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
    if len(cluster.get("chief", ())) > 1:
        raise RequestError(
            f"TF_CONFIG: cluster.chief names {len(cluster['chief'])} "
            "addresses, but there is one chief; list the others as worker."
        )
    return cluster


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
    last = len(addresses[task_type]) - 1
    # bool is an int to Python, and TensorFlow would take true for 1.
    if type(index) is not int or not 0 <= index <= last:
        raise RequestError(
            f"TF_CONFIG: task.index={json.dumps(index)} must be an integer "
            f"from 0 to {last}, a position in cluster.{task_type}."
        )
    return task_type, index
