"""`--mode=scaling`: what more replicas of this machine gain, and what limits.

Each number of replicas, 1, 2, 4, ..., is measured in processes of its own:
`train.py` with the same flags, told by the environment to measure. A replica
always has `--global_batch_size` examples (weak scaling); beside it stands what
becomes of one such batch that all share (strong scaling). `train.py` comes
here; `training/limits.py` measures.
"""

import contextlib
import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

import assemble
from errors import Interrupted
from errors import RequestError
from errors import RunError
from flags import command_line
from flags.command_line import Configs
from strategies import StrategyConfig
from strategies.cluster import loopback
from strategies.cluster import worker_process
from training import files
from training import gradients
from training import limits
from training import preemption
from training import workers

_PROGRAM = str(Path(__file__).with_name("train.py"))
_CHILD = "SCALING_CHILD"
_REPORT = "SCALING_REPORT "
_GRACE_SECS = 5.0
_LOG_LINE = re.compile(r"[IWEF]\d{4} |WARNING")


def run(configs: Configs) -> dict[str, float]:
    """Measures; returns the efficiency of the most replicas.

    Raises:
        RequestError: if a cluster is described, or as `train.run`.
        RunError: if a process fails, in its last words.
        Interrupted: if asked to stop; nothing runs on.
    """
    if _CHILD in os.environ:
        return _measure(configs)
    if os.environ.get("TF_CONFIG", "").strip():
        raise RequestError(
            "TF_CONFIG is set, but --mode=scaling starts workers of its own "
            "on this machine; unset it."
        )
    gpus = tf.config.list_physical_devices("GPU")
    cores = len(loopback.share_of_cores(0, 1)) or os.cpu_count() or 1
    devices = find_devices(configs.strategy, len(gpus), cores)
    rows: list[limits.Row] = []
    signalled: list[float] = []

    def stop() -> None:
        signalled.append(time.monotonic())

    with preemption.calling(stop, 2 * _GRACE_SECS, "ending what runs"):
        for count in limits.choose_counts(len(devices)):
            print(f"Measuring {_count(configs, count)} ...", flush=True)
            found = _run(configs, devices, count, signalled)
            rows.append(limits.compare(count, found, next(iter(rows), None)))
    print("\n".join(limits.table(rows)), flush=True)
    _write(configs, rows)
    return {"efficiency": rows[-1]["efficiency"]}


def find_devices(
    config: StrategyConfig, num_gpus: int, num_cores: int
) -> list[str]:
    """Returns a device for each replica that could be: named, GPUs or CPUs.

    A worker on the CPU has a core, and calls it `cpu:0`.
    """
    gpus = [f"gpu:{i}" for i in range(num_gpus)]
    chosen = list(config.devices) or gpus
    if _has_workers(config) and chosen in ([], ["cpu:0"]):
        return ["cpu:0"] * num_cores
    return chosen or [f"cpu:{i}" for i in range(num_cores)]


def _run(
    configs: Configs,
    devices: Sequence[str],
    count: int,
    signalled: Sequence[float],
) -> dict[str, float]:
    """Measures `count` replicas in new processes; returns their report."""
    lines: list[bytes] = []
    several = _has_workers(configs.strategy)
    with contextlib.ExitStack() as stack:
        ports = stack.enter_context(loopback.reserve_ports(count))
        # Of no cluster at all, whatever stands in the variable outside.
        clusters = loopback.tf_configs(ports) if several else ["{}"]
        children = []
        for index, cluster in enumerate(clusters):
            own = devices[index : index + 1] if several else devices[:count]
            words = command_line.as_words(_of_child(configs, own, count))
            # As many cores as with the most workers, which it is compared to.
            cores = loopback.share_of_cores(index, len(devices))
            child = worker_process.WorkerProcess(
                index,
                [sys.executable, _PROGRAM, *words],
                environ={_CHILD: "1", "TF_CONFIG": cluster},
                cores=cores if several and own[0].startswith("cpu") else (),
                log=Path(os.devnull),
                echo=lines.append,
            )
            stack.callback(child.close)
            children.append(child)
        codes = worker_process.watch(children, signalled, _GRACE_SECS)
    if signalled:
        raise Interrupted("scaling: stopped; nothing is kept, start it again.")
    said = [line.decode(errors="replace") for line in lines]
    _check_ends(codes, said, _count(configs, count))
    report = next(line for line in said if _REPORT in line)
    return json.loads(report.partition(_REPORT)[2])


def _of_child(configs: Configs, devices: Sequence[str], count: int) -> Configs:
    replace, strategy = dataclasses.replace, configs.strategy
    strategy = replace(strategy, devices=tuple(devices), cluster="tf_config")
    if not _has_workers(strategy):
        strategy = replace(strategy, strategy="mirrored")
    size = count * configs.data.global_batch_size
    return configs._replace(
        run=replace(configs.run, model_dir=""),
        strategy=strategy,
        data=replace(configs.data, global_batch_size=size),
    )


def _has_workers(config: StrategyConfig) -> bool:
    return config.strategy == "multi_worker_mirrored"


def _count(configs: Configs, count: int) -> str:
    noun = "worker" if _has_workers(configs.strategy) else "replica"
    size = configs.data.global_batch_size
    return f"{count} {noun}{'s' * (count > 1)} of {size} examples"


def _write(configs: Configs, rows: Sequence[limits.Row]) -> None:
    """Keeps the figures, if there is a folder for them."""
    folder = configs.run.model_dir
    content = command_line.as_dict(configs) | {"rows": rows}
    if folder:
        tf.io.gfile.makedirs(folder)
        path = os.path.join(folder, "scaling.json")
        files.write(path, json.dumps(content, indent=2) + "\n")


def _check_ends(
    codes: Mapping[int, int], said: Sequence[str], what: str
) -> None:
    """Raises the last words of the first process that failed, if one did."""
    index = next((i for i, code in codes.items() if code), None)
    if index is None:
        return
    code = codes[index]
    own = [each.partition(f"[worker {index}] ")[2] for each in said]
    own = [line for line in own if line and not _LOG_LINE.match(line)]
    # Threads may still complain after the last words.
    own = [line for line in own if line.startswith("train.py: ")] or own
    last = own[-1].removeprefix("train.py: ") if own else "no word"
    if code == 2:
        raise RequestError(last)
    if code < 0:
        last = f"ended by signal {-code}; is there memory for so many?"
    raise RunError(f"scaling: {what}: {last}")


def _measure(configs: Configs) -> dict[str, float]:
    """Measures in this process, together with other workers if there are.

    The chief prints the figures.
    """
    parts, config = assemble.make_parts(configs), configs.train
    strategy, size = parts.strategy, configs.data.global_batch_size

    def way(size: int, batches: Any) -> limits.Way:
        other = parts.with_batch_size(size)
        loop = assemble.make_train_loop(other)
        return limits.Way(assemble.make_train(other, loop, batches), size)

    replicas = strategy.num_replicas_in_sync
    batches = assemble.make_iterator(parts)
    constant = limits.Constant(next(batches))
    ways = {"real": way(size, batches), "constant": way(size, constant)}
    if replicas > 1:
        train, _ = way(size, constant)
        ways["apart"] = limits.Way(gradients.apart()(train), size)
        shared = size // replicas
        if shared % (replicas * config.gradient_accumulation_steps) == 0:
            fewer = assemble.make_iterator(parts.with_batch_size(shared))
            ways["strong"] = way(shared, fewer)
    found = limits.measure(
        strategy, ways, config.steps_per_loop, configs.run.scaling_secs
    )
    if workers.is_chief(strategy):
        print(_REPORT + json.dumps(found), flush=True)
    return found
