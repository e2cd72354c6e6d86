"""How two workers tell each other what they were told of the cluster.

The caller sends its `Cluster` as one line of JSON and receives the other's.
"""

import dataclasses
import json
import socket
import threading

from strategies.cluster.tf_config import Cluster

CONNECT_SECS = 1.0
_MAX_BYTES = 1 << 20
# Nobody there, or an answer that none of our workers would give.
_NOT_OURS = (OSError, ValueError, TypeError, LookupError)

# What another was told, and the connection on which it said so.
Peer = tuple[Cluster, socket.socket]


def call(address: str, cluster: Cluster, timeout_secs: float) -> Peer | None:
    """Asks the worker at `address`; None if none of ours is there yet."""
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection(
            (host.strip("[]"), int(port)), CONNECT_SECS
        )
    except OSError:
        return None
    try:
        # The kernel may join a call to a free local port to itself.
        if connection.getsockname() != connection.getpeername():
            connection.settimeout(timeout_secs)
            _send(connection, cluster)
            return _receive(connection), connection
    except _NOT_OURS:
        pass
    connection.close()
    return None


def answer(
    listener: socket.socket,
    cluster: Cluster,
    heard: list[Peer],
    is_over: threading.Event,
) -> None:
    """Answers whoever calls, until `is_over` is set."""
    while not is_over.is_set():
        try:
            connection, _ = listener.accept()
        except OSError:
            continue
        try:
            connection.settimeout(CONNECT_SECS)
            # Hear first: who has an answer must also have been counted.
            theirs = _receive(connection)
            _send(connection, cluster)
        except _NOT_OURS:
            connection.close()
            continue
        heard.append((theirs, connection))


def _send(connection: socket.socket, cluster: Cluster) -> None:
    connection.sendall(json.dumps(dataclasses.asdict(cluster)).encode() + b"\n")


def _receive(connection: socket.socket) -> Cluster:
    with connection.makefile("rb") as stream:
        fields = json.loads(stream.readline(_MAX_BYTES))
    cluster = Cluster(**{**fields, "workers": tuple(fields["workers"])})
    cluster.tasks[cluster.position]  # raises if it is none of them
    return cluster
