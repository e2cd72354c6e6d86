import ctypes
import errno
import os
import socket
import sys

import pytest

from errors import RequestError
from strategies.cluster import loopback
from strategies.cluster import tf_config
from tests import processes


def test_each_worker_is_told_of_all_and_of_itself() -> None:
    for index, text in enumerate(loopback.tf_configs([2222, 3333])):
        cluster = tf_config.read({"TF_CONFIG": text})
        assert cluster
        assert cluster.workers == ("127.0.0.1:2222", "127.0.0.1:3333")
        assert (cluster.task_type, cluster.index) == ("worker", index)


def test_reserved_ports_are_open_to_a_server_and_to_nobody_else() -> None:
    with loopback.reserve_ports(3) as ports:
        assert len(set(ports)) == 3
        with socket.create_server(("", ports[0])) as server:
            address = ("127.0.0.1", ports[0])
            with socket.create_connection(address), server.accept()[0]:
                pass
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", ports[1]))
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[1]))


def test_without_ipv6_ports_are_those_of_ipv4(monkeypatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with (
        loopback.reserve_ports(1) as ports,
        socket.socket() as other,
        pytest.raises(OSError, match="in use"),
    ):
        other.bind(("127.0.0.1", ports[0]))


@pytest.mark.parametrize(
    ("count", "shares"),
    [
        (1, [[2, 3, 5, 7, 8]]),
        (2, [[2, 3], [5, 7, 8]]),
        (5, [[2], [3], [5], [7], [8]]),
        (6, [[]] * 6),
    ],
    ids=str,
)
def test_cores_are_shared_out(monkeypatch, count, shares) -> None:
    cores = {8, 7, 5, 3, 2}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    assert shares == [
        loopback.share_of_cores(index, count) for index in range(count)
    ]


def test_without_the_call_no_core_is_chosen(monkeypatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert loopback.share_of_cores(0, 1) == []


def _refusing(number: int) -> object:
    class Libc:
        def unshare(self, flags: int) -> int:
            ctypes.set_errno(number)
            return -1

    return Libc()


@pytest.mark.parametrize(
    ("libc", "reason"),
    [
        (_refusing(errno.EPERM), "Operation not permitted"),
        (_refusing(errno.ENOSPC), "No space left"),
        (object(), "no attribute 'unshare'"),
    ],
    ids=["forbidden", "too_many", "no_such_call"],
)
def test_a_system_that_does_not_isolate_is_refused(
    monkeypatch, libc, reason
) -> None:
    monkeypatch.setattr(loopback, "_LIBC", libc)
    with pytest.raises(RequestError, match="--isolate_network") as refusal:
        loopback.isolate()
    assert reason in str(refusal.value)


# Prints the interfaces, whether a child reaches a port of this process, and
# whose a new file is.
ISOLATED = """
import os, socket, subprocess, sys
from errors import RequestError
from strategies.cluster import loopback
if sys.argv[1] == "as_user":
    unshare = loopback._unshare
    loopback._unshare = lambda flags: (
        flags != loopback._CLONE_NEWNET and unshare(flags))
try:
    loopback.isolate()
except RequestError as error:
    print("refused", error)
    sys.exit()
with socket.create_server(("127.0.0.1", 0)) as server:
    port = server.getsockname()[1]
    subprocess.run([sys.executable, "-c", f'''
import socket
print(socket.if_nameindex(), flush=True)
socket.create_connection(("127.0.0.1", {port})).close()
'''], check=True)
print(os.getuid(), os.getgid())
"""


@pytest.mark.parametrize("way", ["as_root", "as_user"])
@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_children_share_a_network_with_loopback_alone(way) -> None:
    done = processes.run(ISOLATED, way, program="-c")
    if done.stdout.startswith("refused"):
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr
    interfaces, user = done.stdout.splitlines()
    assert interfaces == "[(1, 'lo')]"
    assert user == f"{os.getuid()} {os.getgid()}"
