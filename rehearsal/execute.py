"""The lowered step, run partitioned on the devices of this machine."""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from rehearsal import child
from rehearsal.lower import Lowered

_TIMEOUT_SECS = 1800.0


class Run(NamedTuple):
    """What a partitioned run came to."""

    losses: np.ndarray
    """`[steps]`."""
    variables: dict[str, np.ndarray]
    """Name → value after the last step."""
    reply: Mapping[str, Any]
    """The child's own message; see `worker`."""


def execute(
    lowered: Lowered,
    batches: Sequence[Sequence[np.ndarray]],
    num_replicas: int,
    num_devices: int,
) -> Run:
    """Runs a step for each batch on `num_replicas · num_devices` devices.

    Args:
        lowered: For as many replicas.
        batches: Tensors of a global batch each, in the order of the step's
            inputs, `[G, …]`. Row `i` is a row of replica `i % num_replicas`.
        num_replicas: Replicas.
        num_devices: Logical devices of each.

    Raises:
        RequestError: if jax is not installed.
        RunError: if XLA fails, with its reason.
    """
    arrays = {f"state/{i}": value for i, value in enumerate(lowered.values)}
    for step, batch in enumerate(batches):
        for i, rows in enumerate(batch):
            parts = [rows[r::num_replicas] for r in range(num_replicas)]
            arrays[f"input/{step}/{i}"] = np.stack(parts)
    request = {
        "kind": "execute",
        "module": lowered.module,
        "num_replicas": num_replicas,
        "num_partitions": num_devices,
        "num_inputs": lowered.num_inputs,
        "steps": len(batches),
        "layers": lowered.layers,
    }
    reply, results = child.run(request, arrays, _TIMEOUT_SECS)
    losses = [results[f"output/{k}/0"][0] for k in range(len(batches))]
    variables = {
        name: results[f"state/{i}"]
        for i, name in enumerate(lowered.names)
        if f"state/{i}" in results
    }
    return Run(np.array(losses), variables, reply)


def count_flops(lowered: Lowered) -> float:
    """Returns the FLOPs of a step of one replica, a loop counted once.

    NaN if jax, which counts, is not installed.
    """
    if not child.is_installed():
        return math.nan
    request = {
        "kind": "count",
        "module": lowered.module,
        "num_replicas": 1,
        "num_partitions": 1,
    }
    return child.run(request, {}, _TIMEOUT_SECS)[0]["flops"]
