import dataclasses
import json
import os
import socket

import pytest

from errors import RequestError
from strategies import StrategyConfig
from strategies import _devices
from strategies import multi_worker_mirrored
from strategies.cluster import rendezvous
from strategies.cluster import tf_config
from strategies.cluster import watch
from tests import processes

# What each worker prints: workers, replicas, the sum of a one from each.
_PROGRAM = """
import sys
import tensorflow as tf
from errors import RequestError
from strategies import StrategyConfig
from strategies import multi_worker_mirrored
from strategies.cluster import watch

config = StrategyConfig(
    strategy="multi_worker_mirrored", devices=("cpu:0",), intra_op_threads=1
)
try:
    strategy = multi_worker_mirrored.create(config)
except RequestError as error:
    sys.exit(str(error))

@tf.function(autograph=False)
def total():
    def replica_fn():
        context = tf.distribute.get_replica_context()
        return context.all_reduce("SUM", tf.constant(1.0))
    return strategy.run(replica_fn)

replicas = strategy.num_replicas_in_sync
workers = replicas // len(strategy.extended.worker_devices)
print(workers, replicas, float(total()))
watch.leave(0)
"""


def _config(*devices: str) -> StrategyConfig:
    return StrategyConfig(strategy="multi_worker_mirrored", devices=devices)


def test_two_workers_sum() -> None:
    results = processes.run_workers(2, _PROGRAM, program="-c")
    for result in results:
        assert result.returncode == 0, result.stderr
        assert result.stdout.endswith("\n2 2 2.0\n")


@pytest.mark.parametrize(
    ("cores", "asked", "threads"),
    [({0}, 0, 2), ({0}, 1, 1), ({0, 1}, 0, 0)],
    ids=["one_core", "asked_for_one", "two_cores"],
)
def test_one_core_has_a_thread_for_the_exchange(
    monkeypatch, cores, asked, threads
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    config = dataclasses.replace(_config(), inter_op_threads=asked)
    found = multi_worker_mirrored._with_threads(config)
    assert found == dataclasses.replace(config, inter_op_threads=threads)


def test_workers_that_disagree_are_refused() -> None:
    """The chief's list is the longer one: TensorFlow would wait for ever."""
    longer = processes.tf_configs(3)[0]
    shorter = json.loads(longer)
    del shorter["cluster"]["worker"][2]
    shorter["task"]["index"] = 1
    workers = [
        processes.start(_PROGRAM, program="-c", env={"TF_CONFIG": text})
        for text in (longer, json.dumps(shorter))
    ]
    for worker, counts in zip(workers, ("3 2", "2 3"), strict=True):
        result = processes.finish(worker)
        here, there = counts.split()
        expected = f"TF_CONFIG: cluster has {here} workers here but {there} at"
        assert expected in result.stderr
        assert result.returncode == 1


def test_needs_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(RequestError, match="TF_CONFIG is not set"):
        multi_worker_mirrored.create(_config())


def test_refuses_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0)) as server:
        address = f"localhost:{server.getsockname()[1]}"
        cluster = {"worker": [address]}
        task = {"type": "worker", "index": 0}
        config = json.dumps({"cluster": cluster, "task": task})
        monkeypatch.setenv("TF_CONFIG", config)
        with pytest.raises(RequestError, match=f"{address}.*already in use"):
            multi_worker_mirrored.create(_config())


@pytest.mark.parametrize("devices", [("cpu:0", "cpu:1"), ("cpu:1",)])
def test_refuses_cpus_that_tensorflow_would_not_use(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TF_CONFIG", processes.tf_configs(2)[0])
    with pytest.raises(RequestError, match="a worker has one CPU device"):
        multi_worker_mirrored.create(_config(*devices))


def test_refuses_absent_gpu_before_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TF_CONFIG", processes.tf_configs(2)[0])
    with pytest.raises(RequestError, match="there is no gpu:63"):
        multi_worker_mirrored.create(_config("gpu:63"))


def test_refuses_nccl_without_gpus_before_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TF_CONFIG", processes.tf_configs(2)[0])
    config = StrategyConfig(strategy="multi_worker_mirrored", collective="nccl")
    with pytest.raises(RequestError, match="--collective=nccl: this worker"):
        multi_worker_mirrored.create(config)


def test_sets_devices_up_before_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []
    text = processes.tf_configs(1)[0]
    monkeypatch.setenv("TF_CONFIG", text)
    monkeypatch.setattr(_devices, "configure", calls.append)
    monkeypatch.setattr(_devices, "show_named_gpus", calls.append)
    links = rendezvous.Links({}, {})

    def meet(*words: object) -> rendezvous.Links:
        calls.append(words)
        return links

    monkeypatch.setattr(rendezvous, "meet", meet)
    monkeypatch.setattr(watch, "start", lambda *words: calls.append(words))
    monkeypatch.setattr(
        multi_worker_mirrored.tf.distribute,
        "MultiWorkerMirroredStrategy",
        lambda communication_options: calls.append(
            communication_options.implementation.value
        ),
    )
    config = StrategyConfig(
        strategy="multi_worker_mirrored", devices=("gpu:0",), collective="ring"
    )
    multi_worker_mirrored.create(config)
    cluster = tf_config.read({"TF_CONFIG": text})
    met = (cluster, config.worker_timeout_secs)
    assert calls == [config, config, met, (cluster, links), "RING"]
