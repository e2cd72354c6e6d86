"""The main of the child process: reads one request, writes one reply.

    python -m rehearsal.worker <folder> <pipe>

It ends when the other end of the pipe, a file descriptor, is closed.

`{"kind": "execute", "module", "num_replicas", "num_partitions", "num_inputs",
"steps"}` with arrays `input/<step>/<i>` `[num_replicas, …]` and `state/<i>`:
runs the step on devices of the host. The reply has `collectives`,
`replica_differences` (one for each state: the largest difference between two
replicas at the end), and arrays `output/<step>/<j>` `[num_replicas, …]` and
`state/<i>`, those of the first replica.

`{"kind": "compile", "module", "topology", "num_replicas", "num_partitions"}`:
compiles for a TPU, whose cores the replicas take in its own order. The reply
has `fits`, `bytes_per_core`, `bytes_available`, `bytes_left`, `memory`,
`flops`, `bytes_accessed`, `collectives`, `largest_buffers`, `compile_secs`.
If the compiler refuses for want of memory, `fits` is false, `compiler_says` has
its words, what only a compiled program has is missing, and `largest_buffers`,
if the compiler lists none, are whole tensors of a replica, before splitting:
their `kind` is `uncompiled`.

`{"kind": "count", "module", "num_replicas", "num_partitions"}`: the reply has
`flops`, those of one replica, before it is cut.

All take `layers` and `argument_names`, names to speak of. A reply with
`error` has nothing else: one line that says why.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rehearsal import buffers
from rehearsal import chips
from rehearsal import collectives
from rehearsal import exchange
from rehearsal import op_name
from rehearsal import refusal
from rehearsal import stablehlo
from rehearsal import xla

_NUM_BUFFERS = 10


def execute(
    request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Runs some steps; the module's docstring says what comes and goes."""
    replicas, partitions = request["num_replicas"], request["num_partitions"]
    start = time.perf_counter()
    executable = xla.compile_for_cpu(
        stablehlo.accepted(request["module"]), replicas, partitions
    )
    compile_secs = time.perf_counter() - start
    # Result → state, which stands behind the inputs among the arguments.
    changed = {
        result: argument - request["num_inputs"]
        for result, argument in stablehlo.aliases(request["module"]).items()
        if argument >= request["num_inputs"]
    }
    num_states = sum(name.startswith("state/") for name in arrays)
    states = [
        np.stack([arrays[f"state/{i}"]] * replicas) for i in range(num_states)
    ]
    results: dict[str, np.ndarray] = {}
    for step in range(request["steps"]):
        inputs = [
            arrays[f"input/{step}/{i}"] for i in range(request["num_inputs"])
        ]
        outputs = xla.run(executable, [*inputs, *states], replicas, partitions)
        for result, state in changed.items():
            states[state] = outputs[result]
        kept = [o for j, o in enumerate(outputs) if j not in changed]
        results |= {f"output/{step}/{j}": o for j, o in enumerate(kept)}
    reply = {
        "compile_secs": compile_secs,
        "collectives": collectives.find(
            xla.text(executable), request.get("layers", ())
        ),
        "replica_differences": [_spread(state) for state in states],
    }
    final = {f"state/{i}": state[0] for i, state in enumerate(states)}
    return reply, {**results, **final}


def _spread(state: np.ndarray) -> float:
    """Returns the largest difference from the first replica.

    Where one of the two is NaN it is infinite.

    Args:
        state: `[num_replicas, …]`.
    """
    first = state[:1]
    # Only a NaN is not itself.
    same = (state == first) | ((state != state) & (first != first))
    difference = np.abs(state.astype(np.float64) - first.astype(np.float64))
    # What differs in int64 or uint64 may be one number in float64.
    difference = np.maximum(difference, np.finfo(np.float64).tiny)
    different = np.where(same, 0.0, np.nan_to_num(difference, nan=np.inf))
    return float(different.max(initial=0.0))


def compile_(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compiles for a TPU; the module's docstring says what comes and goes."""
    module, topology = request["module"], request["topology"]
    available = chips.of(topology).bytes_available
    start = time.perf_counter()
    try:
        executable = xla.compile_for_tpu(
            stablehlo.accepted(module),
            topology,
            [request["num_replicas"], request["num_partitions"]],
        )
    except jax.errors.JaxRuntimeError as error:
        memory = refusal.out_of_memory(str(error))
        if memory is None:
            raise
        reply = _too_large(request, memory, refusal.reason(str(error)))
        return {**reply, "compile_secs": time.perf_counter() - start}
    compile_secs = time.perf_counter() - start
    reply = _compiled(request, executable, available)
    return {**reply, "compile_secs": compile_secs}


def _compiled(
    request: Mapping[str, Any], executable: xla.Executable, available: int
) -> dict[str, Any]:
    text, layers = xla.text(executable), request.get("layers", ())
    memory = xla.memory(executable)
    return {
        "fits": memory["total"] <= available,
        "bytes_per_core": memory["total"],
        "bytes_available": available,
        "bytes_left": available - memory["total"],
        "memory": memory,
        **xla.cost(executable),
        "collectives": collectives.find(text, layers),
        "largest_buffers": buffers.largest(
            text, _NUM_BUFFERS, layers, request.get("argument_names", ())
        ),
    }


def _too_large(
    request: Mapping[str, Any], memory: Mapping[str, Any], words: str
) -> dict[str, Any]:
    layers = request.get("layers", ())
    largest = memory["largest_buffers"] or stablehlo.largest(
        request["module"], _NUM_BUFFERS, request.get("argument_names", ())
    )
    return {
        **memory,
        "fits": False,
        "bytes_left": memory["bytes_available"] - memory["bytes_per_core"],
        "largest_buffers": [
            {**each, "layer": op_name.layer(each["name"], layers)}
            for each in largest
        ],
        "compiler_says": words,
    }


def _complaint(request: Mapping[str, Any], words: str) -> str:
    """Returns one line: what is wrong, and of which operations and layers."""
    where = request.get("topology", "the CPU")
    line = f"{where} does not take the step: {refusal.reason(words)}"
    names = stablehlo.users(request["module"], refusal.reason(words))
    return f"{line} (in {', '.join(names[:3])})" if names else line


def _end_with_parent(pipe: int, folder: Path) -> None:
    """Waits until the other end is closed, then leaves nothing behind."""
    os.read(pipe, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def main() -> None:
    """Answers the request in the folder that the command line names."""
    folder = Path(sys.argv[1])
    watch = (int(sys.argv[2]), folder)
    threading.Thread(target=_end_with_parent, args=watch, daemon=True).start()
    request, arrays = exchange.read(folder, "request")
    results: dict[str, np.ndarray] = {}
    try:
        if request["kind"] == "execute":
            reply, results = execute(request, arrays)
        elif request["kind"] == "count":
            module = stablehlo.accepted(request["module"])
            reply = {"flops": xla.count_flops(module)}
        else:
            reply = compile_(request)
    except jax.errors.JaxRuntimeError as error:
        reply = {"error": _complaint(request, str(error))}
    except ValueError as error:
        reply = {"error": str(error)}
    exchange.write(folder, "reply", reply, results)


if __name__ == "__main__":
    main()
