import socket

import pytest

from strategies.cluster import handshake
from strategies.cluster.tf_config import Cluster


def test_a_call_to_itself_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the kernel gives a caller the very port that it calls."""
    connection = socket.socket()
    connection.bind(("127.0.0.1", 0))
    connection.connect(connection.getsockname())
    monkeypatch.setattr(socket, "create_connection", lambda *_: connection)
    cluster = Cluster(("a:1",), "worker", 0)
    assert handshake.call("a:1", cluster, 1.0) is None
