"""All workers meet before TensorFlow starts, and compare their `TF_CONFIG`.

TensorFlow finds a wrong cluster late or never. Lists of different length end
in an InternalError at the first all-reduce if a worker's list is the longer
one, and in a wait for ever inside C++ if the chief's is; so do lists in
another order, and an index given twice (measured on 2.21). Here every worker
opens its own port, says to every other what it was told and hears what they
were told. A worker that has not started is waited for, but not for ever.

The connections stay open: `watch.py` tells by them who is still there.
"""

import dataclasses
import functools
import os
import socket
import threading
import time

from errors import RequestError
from errors import RunError
from strategies.cluster import handshake
from strategies.cluster.handshake import Peer
from strategies.cluster.tf_config import Cluster

_RETRY_SECS = 0.1
# Once connected a caller must not give up before the other side has answered
# and counted it, or the other side would leave and never be found again.
_ANSWER_SECS = 30.0
# After a fault a worker stays this long, so that the others hear of it too.
_LINGER_SECS = 2.0
# Who waits longer than this is told for whom, each time.
_SILENT_SECS = 10.0


@dataclasses.dataclass(frozen=True)
class Links:
    """The connections of this process with all others."""

    outgoing: dict[int, socket.socket]
    """Position → the one that this process has opened."""
    incoming: dict[int, socket.socket]
    """Position → the one that the other has opened."""

    def close(self) -> None:
        """Closes them all."""
        for connection in (*self.outgoing.values(), *self.incoming.values()):
            connection.close()


# TensorFlow keeps the port until the process ends, so a second strategy in
# the same process must not open it again.
@functools.cache
def meet(cluster: Cluster, timeout_secs: float) -> Links:
    """Waits until all workers are there and agree on the cluster.

    Args:
        cluster: What this process was told.
        timeout_secs: How long to wait for the others.

    Raises:
        RequestError: if the port of this process is taken, if another worker
            was told of another cluster, or if two take themselves for the
            same worker.
        RunError: if a worker does not come, naming it.
    """
    heard: list[Peer] = []
    called: dict[int, Peer] = {}
    is_over = threading.Event()
    with _listen(cluster) as listener:
        thread = threading.Thread(
            target=handshake.answer,
            args=(listener, cluster, heard, is_over),
            daemon=True,
        )
        thread.start()
        try:
            fault = _greet(cluster, called, heard, timeout_secs)
        finally:
            is_over.set()
            thread.join()
    links = Links(
        {i: connection for i, (_, connection) in called.items()},
        {theirs.position: connection for theirs, connection in heard},
    )
    missing = _others(cluster) - (links.outgoing.keys() & links.incoming.keys())
    if fault or missing:
        for _, connection in (*called.values(), *heard):
            connection.close()
    if fault:
        raise _refusal(fault)
    if missing:
        raise RunError(
            f"{_in_words(cluster, missing)} did not come up within "
            f"{timeout_secs:g} s; see why it has not started, or raise "
            "--worker_timeout_secs."
        )
    return links


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
        peer = handshake.call(cluster.address, cluster, handshake.CONNECT_SECS)
        if peer is not None:
            fault = _compare(cluster, peer[0], cluster.position)
            peer[1].close()
        raise _refusal(fault) from error
    listener.settimeout(_RETRY_SECS)
    return listener


def _greet(
    cluster: Cluster,
    called: dict[int, Peer],
    heard: list[Peer],
    timeout_secs: float,
) -> str:
    """Calls all others until each has answered and each has called here.

    Args:
        cluster: What this process was told.
        called: By position, those who have answered; grows.
        heard: Those who have called here; grows in the meantime.
        timeout_secs: When to give up.

    Returns:
        What does not fit; empty if all agree or some have not come.
    """
    others = _others(cluster)
    deadline = time.monotonic() + timeout_secs
    speak = time.monotonic() + _SILENT_SECS
    while True:
        called |= _call_all(cluster, others - called.keys())
        # The other thread adds to `heard`: one moment of it counts.
        callers = [(theirs.position, theirs) for theirs, _ in tuple(heard)]
        pairs = [*((i, theirs) for i, (theirs, _) in called.items()), *callers]
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
            missing = _in_words(cluster, others - called.keys())
            print(
                f"Waiting for {missing or 'a call of the others'}", flush=True
            )
        time.sleep(_RETRY_SECS)


def _others(cluster: Cluster) -> set[int]:
    return set(range(cluster.num_workers)) - {cluster.position}


def _in_words(cluster: Cluster, positions: set[int]) -> str:
    return ", ".join(cluster.tasks[i] for i in sorted(positions))


def _call_all(cluster: Cluster, positions: set[int]) -> dict[int, Peer]:
    """Returns those who are there, by their position."""
    answers = {
        i: handshake.call(cluster.workers[i], cluster, _ANSWER_SECS)
        for i in sorted(positions)
    }
    return {i: peer for i, peer in answers.items() if peer is not None}


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
