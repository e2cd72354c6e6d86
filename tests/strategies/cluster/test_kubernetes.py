import pytest

from errors import RequestError
from strategies.cluster import kubernetes

POD = {
    "JOB_COMPLETION_INDEX": "1",
    "HOSTNAME": "train-1",
    "WORKERS": "2",
    "SERVICE": "peers",
}


def test_pods_find_each_other_by_index() -> None:
    cluster = kubernetes.read(POD)
    assert cluster.workers == ("train-0.peers:2222", "train-1.peers:2222")
    assert (cluster.task_type, cluster.index) == ("worker", 1)
    assert not cluster.has_chief


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({"PORT": "8470"}, "train-1.peers:8470"),
        ({"SERVICE": "peers.team.svc"}, "train-1.peers.team.svc:2222"),
        ({"HOSTNAME": "a-2-1"}, "a-2-1.peers:2222"),
        ({"HOSTNAME": "train-1.peers.team.svc"}, "train-1.peers:2222"),
        ({"JOB_NAME": "run", "HOSTNAME": "node7"}, "run-1.peers:2222"),
        ({"JOB_NAME": ""}, "train-1.peers:2222"),
    ],
)
def test_names(changes: dict[str, str], address: str) -> None:
    assert kubernetes.read({**POD, **changes}).address == address


def test_one_pod_is_a_cluster() -> None:
    environ = {**POD, "WORKERS": "1", "JOB_COMPLETION_INDEX": "0"}
    environ["HOSTNAME"] = "train-0"
    assert kubernetes.read(environ).num_workers == 1
    assert not kubernetes.is_several(environ)


def test_without_number_of_workers_runs_are_their_own() -> None:
    environ = {"JOB_COMPLETION_INDEX": "1"}
    assert kubernetes.is_present(environ)
    assert not kubernetes.is_several(environ)
    assert kubernetes.is_several(POD)
    assert not kubernetes.is_several({"WORKERS": "2"})
    assert not kubernetes.is_present({})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"WORKERS": ""}, "WORKERS is not set; set it to the completions"),
        ({"WORKERS": "two"}, "WORKERS='two': must be an integer"),
        ({"WORKERS": "0"}, "WORKERS='0': must be an integer from 1"),
        ({"WORKERS": "999999999"}, "from 1 to 10000"),
        ({"JOB_COMPLETION_INDEX": "2"}, "INDEX='2': must be .* from 0 to 1"),
        ({"JOB_COMPLETION_INDEX": "-1"}, "INDEX='-1': must be an integer"),
        ({"SERVICE": ""}, "SERVICE='': must be the name of a headless Service"),
        ({"SERVICE": "Peers"}, "SERVICE='Peers': must be the name"),
        ({"SERVICE": "peers:80"}, "SERVICE='peers:80': must be the name"),
        ({"SERVICE": "peers\n"}, "must be the name"),
        ({"PORT": "0"}, "PORT='0': must be an integer from 1 to 65535"),
        ({"PORT": "tcp://1.2.3.4:80"}, "PORT='tcp.* 2222 is used without it"),
        ({"JOB_NAME": "my job"}, "JOB_NAME='my job': must be the name of the"),
        ({"HOSTNAME": "train-0"}, "HOSTNAME='train-0': is not <job>-1"),
        ({"HOSTNAME": "node7"}, "HOSTNAME='node7': is not .* set JOB_NAME"),
        ({"HOSTNAME": "-1"}, "HOSTNAME='-1': is not <job>-1"),
        ({"HOSTNAME": ""}, "HOSTNAME='': is not <job>-1"),
    ],
    ids=lambda value: "=".join(*value.items()) if type(value) is dict else "",
)
def test_refuses(changes: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        kubernetes.read({**POD, **changes})


def test_asks_for_indexed_job() -> None:
    with pytest.raises(RequestError, match="set completionMode: Indexed"):
        kubernetes.read({"WORKERS": "2"})
