"""A cluster on this one machine: ports, `TF_CONFIG`, cores, network."""

import contextlib
import ctypes
import fcntl
import json
import os
import socket
import struct
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path

from errors import RequestError

# From Linux's sched.h, sockios.h and if.h.
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def reserve_ports(count: int) -> Iterator[list[int]]:
    """Finds free ports and keeps them from others while inside.

    A port that was free and was let go may be anyone's by the time a worker
    opens it. Bound with SO_REUSEADDR and never listened at, it stays open to
    the worker, whose server sets that too, and is given to nobody who asks
    for any port.

    Args:
        count: How many; each is free on every interface, as TensorFlow's
            server listens on all.
    """
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            each = stack.enter_context(socket.socket(family))
            if dual:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("", 0))
            ports.append(each.getsockname()[1])
        yield ports


def tf_configs(ports: Sequence[int]) -> list[str]:
    """Returns the `TF_CONFIG` of each worker, one a port."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    return [
        json.dumps(
            {"cluster": cluster, "task": {"type": "worker", "index": index}}
        )
        for index in range(len(ports))
    ]


def share_of_cores(index: int, count: int) -> list[int]:
    """Returns the cores of one of `count` workers; none if there are fewer."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < count:
        return []
    first, end = (len(cores) * i // count for i in (index, index + 1))
    return cores[first:end]


def isolate() -> None:
    """Moves this process into a network of its own, with loopback alone.

    Processes that it starts later are in the same one. It must have a single
    thread.

    Raises:
        RequestError: if the system does not allow it.
    """
    try:
        # Only root may leave the network without leaving its users too.
        if not _unshare(_CLONE_NEWNET):
            _leave_users()
        with socket.socket() as any_socket:
            # struct ifreq: name, flags, padding.
            request = struct.pack("16sh22x", b"lo", _IFF_UP)
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)
    except (OSError, AttributeError) as error:
        raise RequestError(
            f"--isolate_network: this system allows no network namespace "
            f"({error}); become root, allow user namespaces, or drop the flag."
        ) from error


def _unshare(flags: int) -> bool:
    # os.unshare needs Python 3.12. Systems without the call: AttributeError.
    return _LIBC.unshare(flags) == 0


def _leave_users() -> None:
    """Enters new user and network namespaces, as the same user and group."""
    user, group = os.geteuid(), os.getegid()
    if not _unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    # A group may be mapped only once it cannot be used to lose rights.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
