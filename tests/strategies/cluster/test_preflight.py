import json
from typing import Any

import pytest

from errors import RequestError
from strategies import StrategyConfig
from strategies.cluster import preflight
from strategies.cluster import tpu_name
from strategies.placement import wheels
from tests import processes
from tests.strategies.cluster import test_kubernetes
from tests.strategies.cluster import test_slurm

MULTI = StrategyConfig(strategy="multi_worker_mirrored")
WORKERS = ["a:1", "b:2"]
STEP = test_slurm.STEP
POD = test_kubernetes.POD


def _described(
    cluster: Any, task_type: Any = "worker", index: Any = 0
) -> dict[str, str]:
    task = {"type": task_type, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def _workers(*addresses: Any) -> dict[str, str]:
    return _described({"worker": addresses})


# What is wrong → environment variables that are.
MALFORMED = {
    "nothing": {},
    "empty": {"TF_CONFIG": ""},
    "not JSON": {"TF_CONFIG": "{'cluster': {}}"},
    "JSON without end": {"TF_CONFIG": '{"cluster": {"worker": ['},
    "brackets without end": {"TF_CONFIG": "[" * 10**5},
    "not an object": {"TF_CONFIG": '["a:1"]'},
    "no cluster": {"TF_CONFIG": "{}"},
    "empty cluster": _described({}),
    "no task": {"TF_CONFIG": json.dumps({"cluster": {"worker": WORKERS}})},
    "no task type": _described({"worker": WORKERS}, None),
    "no index": _described({"worker": WORKERS}, index=None),
    "index as text": _described({"worker": WORKERS}, index="1"),
    "index beyond the list": _described({"worker": WORKERS}, index=2),
    "negative index": _described({"worker": WORKERS}, index=-1),
    "unknown task": _described({"worker": WORKERS}, "boss"),
    "task without address": _described({"worker": WORKERS}, "chief"),
    "master": _described({"worker": WORKERS}, "master"),
    "parameter server": _described({"worker": WORKERS}, "ps"),
    "cluster with parameter server": _described({"ps": ["a:1"]}),
    "addresses as text": _described({"worker": "a:1,b:2"}),
    "no addresses": _described({"worker": []}),
    "two chiefs": _described({"chief": WORKERS}, "chief"),
    "two evaluators": _described({"worker": ["c:3"], "evaluator": WORKERS}),
    "second evaluator": _described({"worker": WORKERS}, "evaluator", 1),
    "address twice": _workers("a:1", "a:1"),
    "no port": _workers("a"),
    "port too large": _workers("a:65536"),
    "port of letters": _workers("a:http"),
    "address with scheme": _workers("grpc://a:1"),
    "address with line break": _workers("a:1\n"),
    "sbatch without srun": test_slurm.BATCH,
    "open bracket": {**STEP, "SLURM_STEP_NODELIST": "n[1-2"},
    "line break in a list": {**STEP, "SLURM_STEP_NODELIST": "n1\nn2"},
    "range backwards": {**STEP, "SLURM_STEP_NODELIST": "n[2-1]"},
    "endless list": {**STEP, "SLURM_STEP_NODELIST": "n[0-999999999]"},
    "node twice": {**STEP, "SLURM_STEP_NODELIST": "n[1,1]"},
    "fewer nodes": {**STEP, "SLURM_STEP_NODELIST": "n1"},
    "tasks per node": {**STEP, "SLURM_STEP_TASKS_PER_NODE": "1x2"},
    "endless tasks": {**STEP, "SLURM_STEP_TASKS_PER_NODE": "1(x99999)"},
    "more tasks": {**STEP, "SLURM_STEP_NUM_TASKS": "3"},
    "tasks in letters": {**STEP, "SLURM_STEP_NUM_TASKS": "two"},
    "task beyond the step": {**STEP, "SLURM_PROCID": "2"},
    "task elsewhere": {**STEP, "SLURM_NODEID": "0"},
    "arbitrary": {**STEP, "SLURM_DISTRIBUTION": "arbitrary"},
    "plane without size": {**STEP, "SLURM_DISTRIBUTION": "plane"},
    "reserved port": {**STEP, "SLURM_STEP_RESV_PORTS": "70000"},
    "job in letters": {**STEP, "SLURM_JOB_ID": "seven"},
    "pods not counted": {"JOB_COMPLETION_INDEX": "0"},
    "pods in letters": {**POD, "WORKERS": "two"},
    "no pods": {**POD, "WORKERS": "0"},
    "pod beyond the job": {**POD, "JOB_COMPLETION_INDEX": "2"},
    "no service": {**POD, "SERVICE": ""},
    "service with port": {**POD, "SERVICE": "peers:80"},
    "port of a service": {**POD, "PORT": "tcp://10.0.0.1:80"},
    "name of the host": {**POD, "HOSTNAME": "node7"},
    "name of the job": {**POD, "JOB_NAME": "My Job"},
}


def _message(environ: dict[str, str]) -> str:
    with pytest.raises(RequestError) as info:
        preflight.check(MULTI, environ)
    return str(info.value)


@pytest.mark.parametrize("environ", MALFORMED.values(), ids=MALFORMED)
def test_refuses_in_one_line(environ: dict[str, str]) -> None:
    message = _message(environ)
    assert len(message.splitlines()) == 1
    assert len(message) < 400
    assert message.endswith(".")


def test_every_refusal_is_its_own() -> None:
    messages = {kind: _message(each) for kind, each in MALFORMED.items()}
    assert len(set(messages.values())) == len(messages)


def test_checks_cluster() -> None:
    environ = {"TF_CONFIG": processes.tf_configs(2)[0]}
    with pytest.raises(RequestError, match="TF_CONFIG names 2 workers"):
        preflight.check(StrategyConfig(), environ)
    preflight.check(MULTI, environ)


def test_looks_for_tpu_under_its_strategy_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tpu_name, "_CHIPS", ())
    monkeypatch.setattr(wheels, "check", lambda: None)
    preflight.check(StrategyConfig(), {})
    with pytest.raises(RequestError, match="--tpu=local: no TPU"):
        preflight.check(StrategyConfig(strategy="tpu", tpu="local"), {})


def test_looks_at_what_is_installed_before_it_connects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise RequestError("the wheel")

    monkeypatch.setattr(wheels, "check", refuse)
    monkeypatch.delattr(tpu_name, "find")
    preflight.check(StrategyConfig(), {})
    with pytest.raises(RequestError, match="the wheel"):
        preflight.check(StrategyConfig(strategy="tpu", tpu="local"), {})


def test_rehearsal_needs_no_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(wheels, "check")
    monkeypatch.delattr(tpu_name, "find")
    config = StrategyConfig(strategy="tpu", tpu_topology=("v5e:2x2",))
    preflight.check(config, {})


def test_needs_no_tensorflow() -> None:
    result = processes.run(
        "import sys\n"
        "from strategies.cluster import find, preflight, rendezvous\n"
        "assert 'tensorflow' not in sys.modules",
        program="-c",
    )
    assert result.returncode == 0, result.stderr
