"""Two hosts on this machine, whose link can be cut.

Each is a network namespace of Linux; a pair of virtual Ethernet devices joins
them. Needs root.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PORT = 20001


class Host(NamedTuple):
    """A namespace with one end of the link."""

    name: str
    address: str
    """With the port for a worker."""

    def command(self) -> list[str]:
        """Returns the words that run there what follows them."""
        return ["ip", "netns", "exec", self.name]

    def set_link(self, state: str) -> None:
        """Sets this end of the link `up` or `down`."""
        _ip("-n", self.name, "link", "set", "veth", state)


def missing() -> str:
    """Returns what is missing to make hosts; empty if nothing is."""
    if os.geteuid() or not shutil.which("ip"):
        return "needs root and the command ip of iproute2"
    try:
        with connected():
            return ""
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: {error.stderr.strip()}"


@contextlib.contextmanager
def connected(folder: Path | None = None) -> Iterator[list[Host]]:
    """Makes two hosts with a link, and removes them in the end.

    Args:
        folder: Not used: what a setting is made for.
    """
    hosts = [
        Host(f"chaos-{os.getpid()}-{i}", f"10.213.0.{i + 1}:{_PORT}")
        for i in range(2)
    ]
    try:
        for host in hosts:
            _ip("netns", "add", host.name)
        veth = ["type", "veth", "peer", "name", "veth", "netns", hosts[1].name]
        _ip("-n", hosts[0].name, "link", "add", "name", "veth", *veth)
        for host in hosts:
            address = f"{host.address.partition(':')[0]}/24"
            _ip("-n", host.name, "addr", "add", address, "dev", "veth")
            _ip("-n", host.name, "link", "set", "lo", "up")
            host.set_link("up")
        yield hosts
    finally:
        for host in hosts:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", host.name)


def _ip(*words: str) -> None:
    subprocess.run(
        ["ip", *words], check=True, capture_output=True, text=True, timeout=30
    )
