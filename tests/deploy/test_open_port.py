"""What docs/clusters.md says of the open port, seen from another host."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes
from tests.chaos import hosts
from tests.chaos.hosts import Host

# Asks for loopback alone.
SERVER = """
import sys
if "isolated" in sys.argv:
    from strategies.cluster import loopback
    loopback.isolate()
import tensorflow as tf
server = tf.distribute.Server({"worker": ["localhost:20001"]}, "worker", 0)
print("listening", flush=True)
server.join()
"""
READ = """
import sys
import tensorflow as tf
tf.config.experimental_connect_to_host(f"grpc://{sys.argv[1]}")
with tf.device("/job:worker/task:0"):
    print(tf.io.read_file(sys.argv[2]).numpy().decode())
"""
CONNECT = """
import socket
import sys
host, port = sys.argv[1].split(":")
socket.create_connection((host, int(port)), timeout=10)
"""


@pytest.fixture
def pair() -> Iterator[list[Host]]:
    if reason := hosts.missing():
        pytest.skip(reason)
    with hosts.connected() as made:
        yield made


def _start(host: Host, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*host.command(), sys.executable, "-c", *words],
        cwd=processes.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["open", "isolated"])
def test_who_reaches_the_port_reads_files(
    pair: list[Host], tmp_path: Path, kind: str
) -> None:
    ours, theirs = pair
    (tmp_path / "secret").write_text("a file of the worker")
    assert ours.address.endswith(":20001")
    server = _start(ours, SERVER, kind)
    try:
        processes.wait_for(server, "listening")
        program = READ if kind == "open" else CONNECT
        words = (program, ours.address, str(tmp_path / "secret"))
        done = processes.finish(_start(theirs, *words))
    finally:
        server.kill()
        server.communicate()
    if kind == "open":
        assert done.stdout == "a file of the worker\n"
    else:
        assert "ConnectionRefusedError" in done.stderr
