r"""The tasks of a Slurm step as workers: `srun` tells each of the others.

    srun --nodes=2 --ntasks-per-node=1 python train.py \
        --strategy=multi_worker_mirrored --model_dir=runs/two

Task `SLURM_PROCID` is the worker with that index. Which node a task is on
follows from `SLURM_STEP_NODELIST`, `SLURM_STEP_TASKS_PER_NODE` and
`SLURM_DISTRIBUTION`: block, cyclic (what srun takes by itself when there are
no more tasks than nodes) or plane. Every task finds itself there or ends.

Task number `local` of a node listens on port number `local` of those that
`srun --resv-ports` reserved, or else on

    10240 + 32 * ((31 * SLURM_JOB_ID + SLURM_STEP_ID) % 640) + local

which lies below the ports that Linux gives out by itself (from 32768) and
keeps steps of up to 32 tasks a node apart, until the numbers come round.
"""

import re
from collections.abc import Callable
from collections.abc import Mapping
from typing import TypeVar

from errors import RequestError
from strategies.cluster import _variable
from strategies.cluster import hostlist
from strategies.cluster.tf_config import Cluster

T = TypeVar("T")

_ADVICE = "leave Slurm's variables as srun sets them, or write TF_CONFIG"


def is_job(environ: Mapping[str, str]) -> bool:
    """Whether Slurm has anything to do with this process."""
    return "SLURM_JOB_ID" in environ or "SLURM_JOBID" in environ


def is_several(environ: Mapping[str, str]) -> bool:
    """Whether this process is one of several tasks of a step.

    Only srun makes steps. The script of sbatch and the shell of salloc have a
    `SLURM_PROCID` and often a `SLURM_NTASKS` above one, but are alone.
    """
    if not environ.get("SLURM_STEP_NODELIST"):
        return False
    return environ.get(_num_tasks_name(environ)) != "1"


def read(environ: Mapping[str, str]) -> Cluster:
    """Reads Slurm's variables.

    Args:
        environ: Environment variables.

    Returns:
        The cluster, one worker for each task of the step.

    Raises:
        RequestError: if this is no task of a step, or if the variables are
            damaged, contradict each other or are of a kind that says too
            little.
    """
    if not environ.get("SLURM_STEP_NODELIST"):
        raise RequestError(
            "--cluster=slurm: SLURM_STEP_NODELIST is not set, so this is no "
            "task of a Slurm step; sbatch and salloc start one process, put "
            "srun before python."
        )
    name = _num_tasks_name(environ)
    num_tasks = _variable.integer(environ, name, 1, hostlist.MOST, _ADVICE)
    index = _variable.integer(
        environ, "SLURM_PROCID", 0, num_tasks - 1, _ADVICE
    )
    hosts = _expand(hostlist.hosts, environ, "SLURM_STEP_NODELIST")
    places = _places(environ, len(hosts), num_tasks)
    _check_own_place(environ, index, places[index])
    ports = _ports(environ, max(local for _, local in places) + 1)
    workers = tuple(f"{hosts[node]}:{ports[local]}" for node, local in places)
    if len(set(workers)) < num_tasks:
        raise RequestError(
            f"SLURM_STEP_NODELIST={environ['SLURM_STEP_NODELIST']!r}: two "
            f"tasks would have the same address; {_ADVICE}."
        )
    return Cluster(workers, "worker", index)


def _num_tasks_name(environ: Mapping[str, str]) -> str:
    # The older SLURM_NTASKS may be the job's, in a step of fewer tasks.
    name = "SLURM_STEP_NUM_TASKS"
    return name if name in environ else "SLURM_NTASKS"


def _places(
    environ: Mapping[str, str], num_nodes: int, num_tasks: int
) -> list[tuple[int, int]]:
    """Returns for each task its node and its number among those on it."""
    name = "SLURM_STEP_TASKS_PER_NODE"
    if name not in environ:
        name = "SLURM_TASKS_PER_NODE"
    counts = _expand(hostlist.counts, environ, name)
    if len(counts) != num_nodes or sum(counts) != num_tasks:
        raise RequestError(
            f"{name}={environ[name]!r}: says {sum(counts)} tasks on "
            f"{len(counts)} nodes, but the step has {num_tasks} tasks on "
            f"{num_nodes}; {_ADVICE}."
        )
    block = _block(environ, num_tasks)
    places = [
        (node, local)
        for node, count in enumerate(counts)
        for local in range(count)
    ]
    # The nodes take turns, and at each turn take `block` tasks.
    return sorted(places, key=lambda place: (place[1] // block, *place))


def _block(environ: Mapping[str, str], num_tasks: int) -> int:
    """Returns how many tasks in a row go to one node at each turn."""
    text = environ.get("SLURM_DISTRIBUTION", "")
    # What follows is about sockets and cores: `block:cyclic`, `cyclic,NoPack`.
    kind = re.split("[:,=]", text)[0].lower()
    if kind in ("", "*", "block", "unknown"):
        return num_tasks
    if kind == "cyclic":
        return 1
    if kind == "plane":
        return _variable.integer(
            environ, "SLURM_DIST_PLANESIZE", 1, 10**6, _ADVICE
        )
    raise RequestError(
        f"SLURM_DISTRIBUTION={text!r}: does not tell which task is on which "
        "node; use srun --distribution=block, cyclic or plane, or write "
        "TF_CONFIG."
    )


def _check_own_place(
    environ: Mapping[str, str], index: int, place: tuple[int, int]
) -> None:
    for name, expected in zip(
        ("SLURM_NODEID", "SLURM_LOCALID"), place, strict=True
    ):
        if environ.get(name, str(expected)) != str(expected):
            raise RequestError(
                f"{name}={environ[name]!r}: by SLURM_STEP_NODELIST and "
                f"SLURM_DISTRIBUTION task {index} has {expected}; {_ADVICE}."
            )


def _ports(environ: Mapping[str, str], count: int) -> list[int]:
    """Returns the ports of the tasks of one node; the same on each node."""
    name = "SLURM_STEP_RESV_PORTS"
    if environ.get(name):
        ports = [int(port) for port in _expand(hostlist.numbers, environ, name)]
        if len(ports) < count or not 1 <= min(ports) <= max(ports) <= 65535:
            raise RequestError(
                f"{name}={environ[name]!r}: must be {count} or more ports from "
                f"1 to 65535; use srun --resv-ports={count}."
            )
        return ports
    name = "SLURM_JOB_ID" if "SLURM_JOB_ID" in environ else "SLURM_JOBID"
    job = _variable.integer(environ, name, 1, 2**32 - 1, _ADVICE)
    name = "SLURM_STEP_ID" if "SLURM_STEP_ID" in environ else "SLURM_STEPID"
    step = _variable.integer(environ, name, 0, 2**32 - 1, _ADVICE)
    first = 10240 + 32 * ((31 * job + step) % 640)
    return list(range(first, first + count))


def _expand(
    parse: Callable[[str], list[T]], environ: Mapping[str, str], name: str
) -> list[T]:
    text = environ.get(name, "")
    try:
        return parse(text)
    except ValueError as error:
        raise RequestError(f"{name}={text!r}: {error}; {_ADVICE}.") from error
