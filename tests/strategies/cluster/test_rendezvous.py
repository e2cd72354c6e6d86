"""Workers are threads here: nothing of a rendezvous is shared by a process."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import ThreadPoolExecutor

import pytest

from errors import RequestError
from errors import RunError
from strategies.cluster import rendezvous
from strategies.cluster.tf_config import Cluster

DEADLINE_SECS = 20


@pytest.fixture(autouse=True)
def _short_linger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rendezvous, "_LINGER_SECS", 0.5)
    yield
    rendezvous.meet.cache_clear()


def meet(cluster: Cluster, timeout_secs: float = DEADLINE_SECS) -> None:
    links = rendezvous.meet(cluster, timeout_secs)
    others = set(range(cluster.num_workers)) - {cluster.position}
    assert links.outgoing.keys() == links.incoming.keys() == others
    links.close()


def _addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def _worker(addresses: list[str], index: int) -> Cluster:
    return Cluster(tuple(addresses), "worker", index)


def _meet_all(*clusters: Cluster) -> list[BaseException | None]:
    """Lets all meet; returns what each raised, or None."""
    with ThreadPoolExecutor(len(clusters)) as pool:
        futures: list[Future[None]] = [
            pool.submit(meet, cluster) for cluster in clusters
        ]
        return [future.exception(DEADLINE_SECS) for future in futures]


def _check_refused(errors: list[BaseException | None], message: str) -> None:
    for error in errors:
        assert isinstance(error, RequestError)
        assert str(error).startswith("TF_CONFIG: ")
        assert "give every process the same cluster" in str(error)
    assert any(message in str(error) for error in errors), errors


@pytest.mark.parametrize("count", [1, 2, 8])
def test_workers_that_agree_meet(count: int) -> None:
    addresses = _addresses(count)
    clusters = [_worker(addresses, i) for i in range(count)]
    assert _meet_all(*clusters) == [None] * count


def test_chief_and_worker_meet() -> None:
    addresses = tuple(_addresses(2))
    chief = Cluster(addresses, "chief", 0, has_chief=True)
    worker = Cluster(addresses, "worker", 0, has_chief=True)
    assert _meet_all(chief, worker) == [None, None]


def test_worker_is_met_once_per_process() -> None:
    """TensorFlow's own server holds the port from then on."""
    cluster = _worker(_addresses(1), 0)
    meet(cluster)
    port = int(cluster.address.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        meet(cluster)


def test_late_worker_is_waited_for() -> None:
    addresses = _addresses(2)
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(meet, _worker(addresses, 0))
        # Whoever calls in between and is none of ours changes nothing.
        _say(addresses[0], b"GET / HTTP/1.1\r\n\r\n")
        _say(addresses[0], b'{"workers": 3}\n')
        _say(addresses[0], b'{"workers": [], "task_type": "", "index": 0}\n')
        _say(addresses[0], b"")
        assert not early.done()
        meet(_worker(addresses, 1))
        early.result(DEADLINE_SECS)


def _say(address: str, words: bytes) -> None:
    host, port = address.split(":")
    for _ in range(DEADLINE_SECS * 1000):
        try:
            connection = socket.create_connection((host, int(port)), 1)
        except ConnectionRefusedError:
            continue
        with connection:
            connection.sendall(words)
            return
    raise AssertionError(f"{address} never opened")


@pytest.mark.parametrize("longer", [0, 1], ids=["chief", "worker"])
def test_refuses_lists_of_different_length(longer: int) -> None:
    addresses = _addresses(3)
    lists = [addresses[:2], addresses[:2]]
    lists[longer] = addresses
    errors = _meet_all(_worker(lists[0], 0), _worker(lists[1], 1))
    _check_refused(errors, "cluster has 2 workers here but 3 at worker")
    _check_refused(errors, "cluster has 3 workers here but 2 at worker")


def test_refuses_lists_in_different_order() -> None:
    a, b = _addresses(2)
    errors = _meet_all(_worker([a, b], 0), _worker([b, a], 0))
    _check_refused(errors, f"has worker 0 ({a}) here but worker 0 ({b}) at")


@pytest.mark.parametrize(
    ("first", "second"),
    [([0, 1], [0, 2]), ([2, 1], [0, 1])],
    ids=["worker", "chief"],
)
def test_refuses_different_addresses(
    first: list[int], second: list[int]
) -> None:
    addresses = _addresses(3)
    errors = _meet_all(
        _worker([addresses[i] for i in first], 0),
        _worker([addresses[i] for i in second], 1),
    )
    _check_refused(errors, f"({addresses[2]})")


def test_refuses_chief_in_one_list_only() -> None:
    addresses = _addresses(2)
    chief = Cluster(tuple(addresses), "chief", 0, has_chief=True)
    errors = _meet_all(chief, _worker(addresses, 1))
    _check_refused(errors, f"has chief 0 ({addresses[0]}) here but worker 0")


def test_all_hear_of_one_that_differs() -> None:
    a, b, c = _addresses(3)
    errors = _meet_all(
        _worker([a, b, c], 0), _worker([a, b, c], 1), _worker([a, c], 1)
    )
    _check_refused(errors, "cluster has 3 workers here but 2 at worker 1")


def test_refuses_index_given_twice() -> None:
    addresses = _addresses(2)
    errors = _meet_all(_worker(addresses, 1), _worker(addresses, 1))
    _check_refused(errors, "two processes have the task of worker 1 (127.")


def test_refuses_worker_at_address_of_another() -> None:
    """As on two machines that use one port number and mix up their index."""
    a, b = _addresses(2)
    addresses = [a, b, b.replace("127.0.0.1", "localhost")]
    errors = _meet_all(_worker(addresses, 0), _worker(addresses, 2))
    _check_refused(errors, f"worker 1 ({b}) answers as worker 2 (localhost:")


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_refuses_port_in_use(host: str) -> None:
    with socket.create_server((host, 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        message = rf"cannot open the port of worker 0 \({address}\): .* in use"
        with pytest.raises(RequestError, match=message):
            meet(_worker([address], 0))


def test_port_is_free_again_after_restart() -> None:
    addresses = _addresses(2)
    clusters = [_worker(addresses, i) for i in range(2)]
    for _ in range(3):
        rendezvous.meet.cache_clear()
        assert _meet_all(*clusters) == [None, None]


def test_who_waits_is_told_for_whom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rendezvous, "_SILENT_SECS", 0.3)
    addresses = _addresses(2)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(meet, _worker(addresses, 0))
        heard = ""
        deadline = time.monotonic() + DEADLINE_SECS
        while not heard and time.monotonic() < deadline:
            heard = capsys.readouterr().out
        second = pool.submit(meet, _worker(addresses, 1))
        assert first.exception(DEADLINE_SECS) is None
        assert second.exception(DEADLINE_SECS) is None
    assert heard == f"Waiting for worker 1 ({addresses[1]})\n"


def test_names_who_does_not_come() -> None:
    addresses = _addresses(3)
    with ThreadPoolExecutor(2) as pool:
        errors = [
            pool.submit(meet, _worker(addresses, i), 1.0).exception()
            for i in (0, 2)
        ]
    for error in errors:
        assert isinstance(error, RunError)
        assert f"worker 1 ({addresses[1]})" in str(error)
        assert "within 1 s" in str(error)
        assert "--worker_timeout_secs" in str(error)
