"""All workers meet before TensorFlow starts, and compare their `TF_CONFIG`.

TensorFlow finds a wrong cluster late or never. Lists of different length end
in an InternalError at the first all-reduce if a worker's list is the longer
one, and in a wait for ever inside C++ if the chief's is; so do lists in
another order, and an index given twice (measured on 2.21). Here every worker
opens its own port, says to every other what it was told and hears what they
were told. A worker that has not started is waited for, as TensorFlow does.
"""

import dataclasses
import functools
import json
import os
import socket
import threading
import time

from errors import RequestError
from strategies.cluster.tf_config import Cluster

_RETRY_SECS = 0.1
_CONNECT_SECS = 1.0
# Once connected a caller must not give up before the other side has answered
# and counted it, or the other side would leave and never be found again.
_ANSWER_SECS = 30.0
# After a fault a worker stays this long, so that the others hear of it too.
_LINGER_SECS = 2.0
# Who waits longer than this is told for whom, each time.
_SILENT_SECS = 10.0
_MAX_BYTES = 1 << 20
# Nobody there, or an answer that none of our workers would give.
_NOT_OURS = (OSError, ValueError, TypeError, LookupError)


# TensorFlow keeps the port until the process ends, so a second strategy in
# the same process must not open it again.
@functools.cache
def meet(cluster: Cluster) -> None:
    """Waits until all workers are there and agree on the cluster.

    Raises:
        RequestError: if the port of this process is taken, if another worker
            was told of another cluster, or if two take themselves for the
            same worker.
    """
    heard: list[Cluster] = []
    is_over = threading.Event()
    with _listen(cluster) as listener:
        thread = threading.Thread(
            target=_answer,
            args=(listener, cluster, heard, is_over),
            daemon=True,
        )
        thread.start()
        try:
            fault = _greet(cluster, heard)
        finally:
            is_over.set()
            thread.join()
    if fault:
        raise _refusal(fault)


def _listen(cluster: Cluster) -> socket.socket:
    """Opens the port of this process on all interfaces, as TensorFlow does."""
    port = int(cluster.address.rpartition(":")[2])
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        # Sets SO_REUSEADDR: a connection that has just ended does not keep
        # a restarted worker from its port, a listening server does.
        listener = socket.create_server(
            ("", port), family=family, dualstack_ipv6=dual
        )
    except OSError as error:
        fault = (
            f"cannot open the port of {_name(cluster)}: "
            f"{os.strerror(error.errno or 0).lower()}"
        )
        # If another worker holds it, that one must hear of this one too.
        theirs = _call(cluster.address, cluster, _CONNECT_SECS)
        if theirs is not None:
            fault = _compare(cluster, theirs, cluster.position)
        raise _refusal(fault) from error
    listener.settimeout(_RETRY_SECS)
    return listener


def _greet(cluster: Cluster, heard: list[Cluster]) -> str:
    """Calls all others until each has answered and each has called here.

    Args:
        cluster: What this process was told.
        heard: What those who called here were told; grows in the meantime.

    Returns:
        What does not fit; empty if all agree.
    """
    others = set(range(cluster.num_workers)) - {cluster.position}
    called: dict[int, Cluster] = {}
    deadline = float("inf")
    speak = time.monotonic() + _SILENT_SECS
    while True:
        called |= _call_all(cluster, others - called.keys())
        # The other thread adds to `heard`: one moment of it counts.
        callers = [(theirs.position, theirs) for theirs in tuple(heard)]
        pairs = [*called.items(), *callers]
        faults = [_compare(cluster, theirs, i) for i, theirs in pairs]
        fault = next(filter(None, faults), "")
        if others <= called.keys() & dict(callers).keys():
            return fault
        if fault:
            deadline = min(deadline, time.monotonic() + _LINGER_SECS)
        if time.monotonic() > deadline:
            return fault
        if time.monotonic() > speak:
            speak += _SILENT_SECS
            _say_who_is_missing(cluster, others - called.keys())
        time.sleep(_RETRY_SECS)


def _say_who_is_missing(cluster: Cluster, positions: set[int]) -> None:
    missing = ", ".join(cluster.workers[i] for i in sorted(positions))
    print(f"Waiting for {missing or 'a call from the others'}", flush=True)


def _call_all(cluster: Cluster, positions: set[int]) -> dict[int, Cluster]:
    """Returns what those were told who are there, by their position."""
    answers = {
        i: _call(cluster.workers[i], cluster, _ANSWER_SECS)
        for i in sorted(positions)
    }
    return {i: theirs for i, theirs in answers.items() if theirs is not None}


def _compare(ours: Cluster, theirs: Cluster, expected: int) -> str:
    """Returns what speaks against `theirs` being the worker at `expected`."""
    name = _name(theirs)
    if theirs.num_workers != ours.num_workers:
        return (
            f"cluster has {ours.num_workers} workers here but "
            f"{theirs.num_workers} at {name}"
        )
    for here, there in zip(ours.tasks, theirs.tasks, strict=True):
        if here != there:
            return f"cluster has {here} here but {there} at {name}"
    if theirs.position == ours.position:
        return f"two processes have the task of {name}"
    if theirs.position != expected:
        return f"{ours.tasks[expected]} answers as {name}"
    return ""


def _refusal(fault: str) -> RequestError:
    return RequestError(
        f"TF_CONFIG: {fault}; give every process the same cluster, in the same "
        "order, and a task and a free port of its own."
    )


def _name(cluster: Cluster) -> str:
    return cluster.tasks[cluster.position]


def _call(
    address: str, cluster: Cluster, timeout_secs: float
) -> Cluster | None:
    """Asks the worker at `address`; None if none of ours is there yet."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection(
            (host.strip("[]"), int(port)), _CONNECT_SECS
        ) as connection:
            # The kernel may join a call to a free local port to itself.
            if connection.getsockname() == connection.getpeername():
                return None
            connection.settimeout(timeout_secs)
            _send(connection, cluster)
            return _receive(connection)
    except _NOT_OURS:
        return None


def _answer(
    listener: socket.socket,
    cluster: Cluster,
    heard: list[Cluster],
    is_over: threading.Event,
) -> None:
    """Answers whoever calls, until `is_over` is set."""
    while not is_over.is_set():
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_CONNECT_SECS)
                # Hear first: who has an answer must also have been counted.
                theirs = _receive(connection)
                _send(connection, cluster)
        except _NOT_OURS:
            continue
        heard.append(theirs)


def _send(connection: socket.socket, cluster: Cluster) -> None:
    connection.sendall(json.dumps(dataclasses.asdict(cluster)).encode() + b"\n")


def _receive(connection: socket.socket) -> Cluster:
    with connection.makefile("rb") as stream:
        fields = json.loads(stream.readline(_MAX_BYTES))
    cluster = Cluster(**{**fields, "workers": tuple(fields["workers"])})
    _name(cluster)
    return cluster
