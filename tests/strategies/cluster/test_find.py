import json

import pytest

from errors import RequestError
from strategies import StrategyConfig
from strategies.cluster import find
from strategies.cluster import slurm
from strategies.cluster import tf_config
from tests.strategies.cluster import test_kubernetes
from tests.strategies.cluster import test_slurm

STEP = test_slurm.STEP
POD = test_kubernetes.POD
TWO = {
    "TF_CONFIG": json.dumps(
        {
            "cluster": {"worker": ["a:1", "b:2"]},
            "task": {"type": "worker", "index": 1},
        }
    )
}
EVALUATOR = {"TF_CONFIG": '{"task": {"type": "evaluator", "index": 0}}'}
PORT = test_slurm.PORT


def _config(
    strategy: str = "multi_worker_mirrored", cluster: str = "auto"
) -> StrategyConfig:
    return StrategyConfig(strategy=strategy, cluster=cluster)


@pytest.mark.parametrize(
    ("environ", "first"),
    [
        (TWO, "a:1"),
        (STEP, f"n1:{PORT}"),
        (POD, "train-0.peers:2222"),
        ({**POD, **STEP, **TWO}, "a:1"),
        ({**POD, **STEP}, f"n1:{PORT}"),
        ({**STEP, "TF_CONFIG": " "}, f"n1:{PORT}"),
        ({**POD, **test_slurm.INTERACTIVE}, "train-0.peers:2222"),
    ],
    ids=["tf_config", "slurm", "kubernetes", "all", "two", "empty", "shell"],
)
def test_auto_takes_the_first_there_is(
    environ: dict[str, str], first: str
) -> None:
    assert find.require("auto", {**environ}).workers[0] == first
    cluster = find.check(_config(), environ)
    assert cluster is not None
    assert cluster.workers[0] == first


@pytest.mark.parametrize(
    ("source", "first"),
    [
        ("tf_config", "a:1"),
        ("slurm", f"n1:{PORT}"),
        ("kubernetes", "train-0.peers:2222"),
    ],
)
def test_named_source_wins(source: str, first: str) -> None:
    environ = {**POD, **STEP, **TWO}
    cluster = find.check(_config(cluster=source), environ)
    assert cluster is not None
    assert cluster.workers[0] == first
    assert find.require(source, environ) == cluster
    # What TensorFlow will read is what was chosen.
    assert tf_config.read(environ) == cluster


def test_named_source_accepts_a_lone_task() -> None:
    assert find.require("slurm", {**test_slurm.INTERACTIVE}).num_workers == 1


@pytest.mark.parametrize(
    ("source", "environ", "line"),
    [
        ("auto", TWO, "Cluster from TF_CONFIG: worker 1 (b:2), 1 peer: a:1"),
        (
            "auto",
            STEP,
            f"Cluster from Slurm's variables: worker 1 (n2:{PORT}), "
            f"1 peer: n1:{PORT}",
        ),
        (
            "auto",
            POD,
            "Cluster from the variables of the Kubernetes Job: worker 1 "
            "(train-1.peers:2222), 1 peer: train-0.peers:2222",
        ),
        (
            "auto",
            {**TWO, **STEP},
            "Cluster from TF_CONFIG: worker 1 (b:2), 1 peer: a:1 "
            "(Slurm's variables not used)",
        ),
        (
            "slurm",
            {**TWO, **STEP, "JOB_COMPLETION_INDEX": "0"},
            f"Cluster from Slurm's variables: worker 1 (n2:{PORT}), "
            f"1 peer: n1:{PORT} (TF_CONFIG and the variables of the "
            "Kubernetes Job not used)",
        ),
        (
            "tf_config",
            {
                "TF_CONFIG": '{"cluster": {"chief": ["a:1"]}, '
                '"task": {"type": "chief", "index": 0}}'
            },
            "Cluster from TF_CONFIG: chief 0 (a:1), 0 peers",
        ),
    ],
    ids=["tf_config", "slurm", "kubernetes", "both", "named", "alone"],
)
def test_says_what_it_found(
    capsys, source: str, environ: dict[str, str], line: str
) -> None:
    find.require(source, {**environ})
    assert capsys.readouterr().out == f"{line}\n"


def test_second_strategy_of_a_process_finds_the_same(capsys) -> None:
    """By then `TF_CONFIG` is there, and says what Slurm says."""
    environ = {**STEP}
    first = find.require("auto", environ)
    capsys.readouterr()
    assert find.require("auto", environ) == first
    assert "not used" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "peers"),
    [
        (9, "8 peers: h0:1, h2:1, h3:1, h4:1, h5:1, h6:1, h7:1, h8:1"),
        (
            10,
            "9 peers: h0:1, h2:1, h3:1, h4:1, h5:1, h6:1, h7:1, ..., h9:1",
        ),
    ],
)
def test_many_peers_are_shortened(capsys, count: int, peers: str) -> None:
    workers = tuple(f"h{i}:1" for i in range(count))
    cluster = tf_config.Cluster(workers, "worker", 1)
    find.require("auto", {"TF_CONFIG": tf_config.write(cluster)})
    out = capsys.readouterr().out
    assert out == f"Cluster from TF_CONFIG: worker 1 (h1:1), {peers}\n"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "TF_CONFIG is not set, so this would be a lone worker; start"),
        (test_slurm.BATCH, "not one of several tasks of srun, so this would"),
        (test_slurm.INTERACTIVE, "not one of several tasks of srun"),
        ({"TF_CONFIG": ""}, "TF_CONFIG is empty"),
    ],
    ids=["nothing", "sbatch", "salloc", "empty"],
)
def test_multi_worker_strategy_needs_cluster(
    environ: dict[str, str], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        find.check(_config(), environ)
    with pytest.raises(RequestError, match=message):
        find.require("auto", {**environ})


def test_named_source_must_be_there() -> None:
    with pytest.raises(RequestError, match="put srun before python"):
        find.check(_config(cluster="slurm"), TWO)
    with pytest.raises(RequestError, match="completionMode: Indexed"):
        find.check(_config(cluster="kubernetes"), TWO)
    with pytest.raises(RequestError, match="TF_CONFIG is not set"):
        find.check(_config(cluster="tf_config"), STEP)


@pytest.mark.parametrize("strategy", ["one_device", "mirrored", "tpu"])
@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (TWO, "TF_CONFIG names 2 workers"),
        (STEP, "by Slurm's variables this is one of several workers"),
        (POD, "by the variables of the Kubernetes Job this is one of"),
    ],
    ids=["tf_config", "slurm", "kubernetes"],
)
def test_other_strategies_refuse_several_workers(
    strategy: str, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(RequestError, match=f"--strategy={strategy}: {message}"):
        find.check(_config(strategy), environ)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        test_slurm.BATCH,
        test_slurm.INTERACTIVE,
        # One of many runs of their own.
        {"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "sweep-3"},
        {**POD, "WORKERS": "1"},
    ],
    ids=["nothing", "sbatch", "salloc", "sweep", "one pod"],
)
def test_other_strategies_accept_a_lone_process(
    environ: dict[str, str],
) -> None:
    assert find.check(_config("one_device"), environ) is None


def test_other_strategies_accept_one_worker() -> None:
    lone = tf_config.write(tf_config.Cluster(("a:1",), "worker", 0))
    cluster = find.check(_config("one_device"), {**STEP, "TF_CONFIG": lone})
    assert cluster is not None
    assert cluster.num_workers == 1


def test_runs_of_their_own_can_be_tasks_of_a_step() -> None:
    config = _config("one_device", "tf_config")
    assert find.check(config, STEP) is None
    assert slurm.is_several(STEP)


@pytest.mark.parametrize("strategy", ["one_device", "multi_worker_mirrored"])
def test_evaluator_needs_no_cluster(strategy: str) -> None:
    assert find.check(_config(strategy), EVALUATOR) is None


def test_evaluator_is_no_worker() -> None:
    with pytest.raises(RequestError, match="'evaluator' is no worker"):
        find.require("auto", {**EVALUATOR})
