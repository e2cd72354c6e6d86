import dataclasses
import json
from typing import Any

import pytest

from errors import RequestError
from strategies.cluster import tf_config

TWO = {"worker": ["a:1", "b:2"]}
FIRST = {"type": "worker", "index": 0}


def _environ(cluster: Any, task: Any = FIRST) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def test_unset_is_no_cluster() -> None:
    assert tf_config.read({}) is None


def test_workers_alone_have_worker_zero_as_chief() -> None:
    cluster = tf_config.read(_environ(TWO))
    assert cluster == tf_config.Cluster(("a:1", "b:2"), "worker", 0)
    assert cluster.num_workers == 2
    assert cluster.is_chief
    assert cluster.address == "a:1"
    assert cluster.tasks == ("worker 0 (a:1)", "worker 1 (b:2)")


@pytest.mark.parametrize(
    ("task", "position"),
    [("chief", 0), ("worker", 1)],
)
def test_chief_stands_before_workers(task: str, position: int) -> None:
    # The order inside the object does not matter, as in TensorFlow.
    description = {"worker": ["b:2", "c:3"], "chief": ["a:1"]}
    environ = _environ(description, {"type": task, "index": 0})
    cluster = tf_config.read(environ)
    assert cluster is not None
    assert cluster.workers == ("a:1", "b:2", "c:3")
    assert cluster.position == position
    assert cluster.is_chief == (task == "chief")
    assert cluster.address == cluster.workers[position]
    assert cluster.tasks[:2] == ("chief 0 (a:1)", "worker 0 (b:2)")


def test_chief_alone_is_a_cluster() -> None:
    environ = _environ({"chief": ["a:1"]}, {"type": "chief", "index": 0})
    cluster = tf_config.read(environ)
    assert cluster is not None
    assert cluster.tasks == ("chief 0 (a:1)",)


@pytest.mark.parametrize(
    "address",
    ["[::1]:2222", "10.0.0.1:1", "host-1.example.org:65535", "job_0.ns:80"],
)
def test_accepts_address(address: str) -> None:
    cluster = tf_config.read(_environ({"worker": [address]}))
    assert cluster is not None
    assert cluster.address == address


def test_ignores_members_of_others() -> None:
    """Kubeflow and Vertex AI add `environment`, the latter a `trial`."""
    config = {
        "cluster": TWO,
        "task": {**FIRST, "trial": ""},
        "environment": "cloud",
    }
    assert tf_config.read({"TF_CONFIG": json.dumps(config)}) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "TF_CONFIG is empty"),
        ("  ", "TF_CONFIG is empty"),
        ("{worker: 1}", "TF_CONFIG is not JSON"),
        ("[" * 10**5, "TF_CONFIG is not JSON"),
        ('{"task": ' + "9" * 5000, "TF_CONFIG is not JSON"),
        ("[\n1]", r"TF_CONFIG is \[1\], not a JSON object"),
        ("[1]", r"TF_CONFIG is \[1\], not a JSON object"),
        ("null", "TF_CONFIG is null, not a JSON object"),
        ("{}", "cluster is missing, must be an object"),
        ('{"task": {}}', "cluster is missing"),
        ('{"cluster": {}}', r"cluster is \{\}, must be an object"),
        ('{"cluster": null}', "cluster is null, must be an object"),
        ('{"cluster": ["a:1"]}', "cluster is .*must be an object"),
    ],
    ids=lambda text: text[:30],
)
def test_refuses_text(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        tf_config.read({"TF_CONFIG": text})


def test_refuses_missing_task() -> None:
    with pytest.raises(RequestError, match="TF_CONFIG: task is missing"):
        tf_config.read({"TF_CONFIG": json.dumps({"cluster": TWO})})


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"worker": "a:1"}, r"cluster\.worker=.a:1. must be a list"),
        ({"worker": []}, r"cluster\.worker=\[\] must be a list"),
        ({"worker": None}, r"cluster\.worker=null must be a list"),
        ({"worker": {"0": "a:1"}}, r"cluster\.worker=.* must be a list"),
        ({"worker": ["a:1", 2]}, r"cluster\.worker\[1\]=2 must be host:port"),
        ({"worker": ["a"]}, r"cluster\.worker\[0\]=.a. must be host:port"),
        ({"worker": ["a:"]}, "must be host:port"),
        ({"worker": [":1"]}, "must be host:port"),
        ({"worker": ["a:x"]}, "must be host:port"),
        ({"worker": ["a:0"]}, "port from 1 to 65535"),
        ({"worker": ["a:65536"]}, "port from 1 to 65535"),
        ({"worker": ["a:-1"]}, "must be host:port"),
        ({"worker": ["a b:1"]}, "must be host:port"),
        ({"worker": ["a:1\n"]}, "must be host:port"),
        ({"worker": ["::1:2222"]}, r"must be host:port.*\[::1\]:2222"),
        ({"worker": ["grpc://a:1"]}, "without a scheme"),
        ({"chief": ["a:1", "b:2"]}, "cluster.chief names 2 addresses"),
        ({"worker": ["a:1", "a:1"]}, "cluster names 'a:1' twice"),
        ({"worker": ["a:1", "A:1"]}, "cluster names 'A:1' twice"),
        ({"chief": ["a:1"], "worker": ["a:1"]}, "cluster names 'a:1' twice"),
        ({**TWO, "ps": ["c:3"]}, "'ps' is not supported"),
        ({**TWO, "ps": ["c:3"]}, "parameter servers train asynchronously"),
        ({"master": ["a:1"]}, "'master' is the old name; rename it to chief"),
        ({"workers": ["a:1"]}, "'workers' is unknown; allowed are chief"),
        ({**TWO, "evaluator": "c:3"}, r"cluster\.evaluator=.* must be a list"),
        ({**TWO, "evaluator": ["c"]}, r"cluster\.evaluator\[0\]=.c. must be"),
        ({**TWO, "evaluator": ["c:3", "d:4"]}, "there is one evaluator"),
    ],
)
def test_refuses_cluster(cluster: Any, message: str) -> None:
    with pytest.raises(RequestError, match="TF_CONFIG: .*" + message):
        tf_config.read(_environ(cluster))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({}, r"task is \{\}, must be an object"),
        ("worker", "task is .worker., must be an object"),
        ({"index": 0}, r"task\.type is missing"),
        ({"type": "worker"}, r"task\.index is missing"),
        (
            {"type": "master", "index": 0},
            r"task\.type 'master' is the old name",
        ),
        ({"type": "ps", "index": 0}, r"task\.type 'ps' is not supported"),
        ({"type": "evaluator", "index": 0}, "'evaluator' is no worker"),
        ({"type": "evaluator", "index": 1}, r"index=1 must be .* from 0 to 0"),
        ({"type": "boss", "index": 0}, r"task\.type 'boss' is unknown"),
        ({"type": None, "index": 0}, r"task\.type None is unknown"),
        ({"type": ["worker"], "index": 0}, r"task\.type .* is unknown"),
        ({"type": "chief", "index": 0}, "cluster has no chief; allowed is wor"),
        ({"type": "worker", "index": 2}, r"task\.index=2 must be .* 0 to 1"),
        ({"type": "worker", "index": -1}, r"task\.index=-1 must be .* 0 to 1"),
        ({"type": "worker", "index": "0"}, r"task\.index=.0. must be an int"),
        ({"type": "worker", "index": 0.0}, r"task\.index=0\.0 must be an int"),
        ({"type": "worker", "index": True}, r"task\.index=true must be an int"),
        ({"type": "worker", "index": None}, r"task\.index=null must be an int"),
    ],
)
def test_refuses_task(task: Any, message: str) -> None:
    with pytest.raises(RequestError, match="TF_CONFIG: .*" + message):
        tf_config.read(_environ(TWO, task))


@pytest.mark.parametrize(
    "cluster",
    [
        tf_config.Cluster(("a:1", "b:2"), "worker", 1),
        tf_config.Cluster(("a:1", "b:2"), "worker", 0, has_chief=True),
        tf_config.Cluster(("a:1",), "chief", 0, has_chief=True),
    ],
    ids=["workers", "chief and worker", "chief"],
)
def test_reads_what_it_writes(cluster: tf_config.Cluster) -> None:
    text = tf_config.write(cluster)
    assert tf_config.read({"TF_CONFIG": text}) == cluster


def test_cluster_that_trains_is_without_evaluator() -> None:
    cluster = tf_config.read(_environ({**TWO, "evaluator": ["c:3"]}))
    assert cluster is not None
    assert cluster.workers == ("a:1", "b:2")
    assert "evaluator" not in tf_config.write(cluster)


@pytest.mark.parametrize(
    "cluster",
    [TWO, {**TWO, "evaluator": ["c:3"]}, {"chief": ["a:1"]}],
    ids=["workers", "with evaluator", "chief"],
)
def test_knows_evaluator(cluster: Any) -> None:
    task = {"type": "evaluator", "index": 0}
    assert tf_config.is_evaluator(_environ(cluster, task))
    assert tf_config.is_evaluator({"TF_CONFIG": json.dumps({"task": task})})
    assert not tf_config.is_evaluator(_environ(cluster))


@pytest.mark.parametrize("text", [None, "", " ", "{}", '{"task": "evaluator"}'])
def test_nothing_is_no_evaluator(text: str | None) -> None:
    environ = {} if text is None else {"TF_CONFIG": text}
    assert not tf_config.is_evaluator(environ)


@pytest.mark.parametrize(
    ("cluster", "index", "message"),
    [
        ({}, 0, r"cluster is \{\}, must be an object"),
        ({"worker": ["a"]}, 0, "must be host:port"),
        ({**TWO, "ps": ["c:3"]}, 0, "'ps' is not supported"),
        (TWO, None, r"task\.index=null must be an integer from 0 to 0"),
        (TWO, 1, r"task\.index=1 must be .* a position in cluster\.evaluator"),
    ],
)
def test_refuses_evaluator(cluster: Any, index: Any, message: str) -> None:
    environ = _environ(cluster, {"type": "evaluator", "index": index})
    with pytest.raises(RequestError, match="TF_CONFIG: .*" + message):
        tf_config.is_evaluator(environ)


def test_cluster_is_frozen() -> None:
    cluster = tf_config.Cluster(("a:1",), "worker", 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cluster.index = 1  # type: ignore[misc]
