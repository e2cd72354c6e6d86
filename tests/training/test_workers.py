"""Agreement: trivial in one process, and between two real ones."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

import train
from data import DataConfig
from errors import RequestError
from flags.command_line import Configs
from model import ModelConfig
from strategies import StrategyConfig
from tests import processes
from training import RunConfig
from training import TrainConfig
from training import workers

# What each of two workers runs; the asserts of both must hold.
PROGRAM = """
import os
import types
import numpy as np
import tensorflow as tf
from errors import RequestError
from training import workers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
chief = workers.is_chief(strategy)
index = strategy.cluster_resolver.task_id
assert chief == (index == 0)
assert workers.task_name(strategy) == f"worker-{index}"
assert workers.count(strategy) == 2
assert workers.total(strategy, 5 + index) == 11

payload = bytes(range(256)) * 3 + b"odd"
mine = payload if chief else b"ignored"
assert workers.broadcast(strategy, mine) == payload
assert workers.broadcast(strategy, b"" if chief else b"x") == b""

values = {
    "float": np.array([[-0.0, np.nan], [np.inf, 1e-45]], np.float32),
    "int": np.array(-7, np.int64),
    "seed": np.array([2**32 - 1, 3], np.uint32),
}
specs = {k: tf.TensorSpec(v.shape, v.dtype) for k, v in values.items()}
got = workers.broadcast_values(strategy, specs, values if chief else {})
for name, value in values.items():
    assert got[name].tobytes() == value.tobytes(), name
    assert got[name].dtype == value.dtype and got[name].shape == value.shape

workers.raise_together(strategy, None)
try:
    workers.raise_together(strategy, RequestError("no") if chief else None)
except RequestError as error:
    assert str(error) == "no" if chief else "another worker" in str(error)
else:
    raise AssertionError("not raised")

try:
    with workers.together(strategy):
        if not chief:
            raise RequestError("not here")
except RequestError as error:
    assert ("another worker" if chief else "not here") in str(error)
else:
    raise AssertionError("not raised")
# The same function each time: another would be traced anew.
assert workers._make_share(strategy) is workers._make_share(strategy)

workers.check_same_data(strategy, "mine", types.SimpleNamespace(count=3))
try:
    info = types.SimpleNamespace(count=3, names=("a", "bc"[index]))
    workers.check_same_data(strategy, "mine", info)
except RequestError as error:
    print("refused:", error)
else:
    raise AssertionError("not raised")

same = {"run": {"seed": 1, "model_dir": f"runs/{index}"}}
workers.check_same_config(strategy, same)
try:
    workers.check_same_config(strategy, {"run": {"seed": index}})
except RequestError as error:
    print("refused:", error)
else:
    raise AssertionError("not raised")
"""


def test_two_workers_agree(tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = {"PYTHONPATH": str(processes.ROOT)}
    chief, other = processes.run_workers(2, env=path, program=str(program))
    assert chief.returncode == 0, chief.stderr
    assert other.returncode == 0, other.stderr
    assert "another worker was started with other flags" in chief.stdout
    assert "--seed: this worker has 1, the chief has 0" in other.stdout
    found = "worker 1 found names=('a', 'c'), the chief ('a', 'b');"
    assert f"--dataset=mine: {found}" in other.stdout
    assert "another worker has refused" in chief.stdout


@pytest.mark.parametrize("replicas", [1, 2])
def test_one_worker_agrees_with_itself(strategy_of, replicas) -> None:
    strategy = strategy_of(replicas)
    assert workers.count(strategy) == 1
    assert workers.is_chief(strategy)
    assert workers.total(strategy, 7) == 7
    assert workers.broadcast(strategy, b"text") == b"text"
    values = {"a": np.arange(3)}
    specs = {"a": tf.TensorSpec([3], tf.int64)}
    received = workers.broadcast_values(strategy, specs, values)
    np.testing.assert_array_equal(received["a"], values["a"])
    workers.check_same_config(strategy, {"run": {"seed": 1}})
    workers.raise_together(strategy, None)
    with pytest.raises(RequestError, match="no"), workers.together(strategy):
        raise RequestError("no")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"num_examples": 4, "names": ("a", "c")}, "worker 1 found names="),
        ({"num_examples": 5, "names": ("a", "b")}, "found num_examples=5"),
        ({"num_examples": 4, "names": ("a", "b")}, ""),
    ],
    ids=["names", "number", "same"],
)
def test_workers_must_find_the_same_data(monkeypatch, found, message) -> None:
    strategy = types.SimpleNamespace(
        extended=types.SimpleNamespace(worker_devices=("cpu:0",)),
        num_replicas_in_sync=1,
        cluster_resolver=types.SimpleNamespace(task_id=1),
    )
    chief = {"num_examples": "4", "names": "('a', 'b')"}
    monkeypatch.setattr(
        workers, "broadcast", lambda *_: json.dumps(chief).encode()
    )
    info = types.SimpleNamespace(**found)
    if not message:
        return workers.check_same_data(strategy, "mine", info)
    with pytest.raises(RequestError, match=f"--dataset=mine: .*{message}"):
        workers.check_same_data(strategy, "mine", info)


def test_a_run_compares_what_the_workers_have_found(monkeypatch) -> None:
    def refuse(strategy, dataset, info) -> None:
        raise RequestError(f"{dataset}: {info.num_examples}")

    monkeypatch.setattr(workers, "check_same_data", refuse)
    configs = Configs(
        RunConfig(),
        StrategyConfig(),
        DataConfig(dataset="digits"),
        ModelConfig(),
        TrainConfig(),
    )
    with pytest.raises(RequestError, match=r"digits: {'train': 1438"):
        train.run(configs)
