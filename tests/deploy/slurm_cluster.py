"""A real Slurm of two nodes on this machine.

Each node is a slurmd in namespaces of its own: it has its own network and host
name, and its processes end with it. All files of Slurm and munge are in one
folder. Needs root.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.chaos import hosts

DEADLINE_SECS = 60
_COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "nsenter", "unshare")
_NODES = "node1", "node2"
# Half a minute of grace is the default of a cluster, too.
_CONFIG = """\
ClusterName=test
SlurmctldHost=node1({addresses[0]})
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
KillWait=30
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
SlurmdLogFile={folder}/%n.log
NodeName=node1 NodeAddr={addresses[0]} CPUs={cpus}
NodeName=node2 NodeAddr={addresses[1]} CPUs={cpus}
PartitionName=all Nodes=ALL Default=YES State=UP
"""
# The shell stays, as process 1 of its namespace, and reaps what others leave.
_IN_NODE = 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && "$@"'


def missing() -> str:
    """Returns what is missing to run a cluster; empty if nothing is."""
    lost = [name for name in _COMMANDS if not shutil.which(name)]
    if lost:
        return (
            f"needs {', '.join(lost)}: apt-get install slurm-wlm munge "
            "util-linux, as root"
        )
    return hosts.missing()


class Cluster(NamedTuple):
    """Two nodes that take jobs."""

    folder: Path
    namespaces: tuple[str, ...]

    def node_command(self, index: int) -> list[str]:
        """Returns the words that run on a node what follows them."""
        return [
            "nsenter",
            f"--net=/run/netns/{self.namespaces[index]}",
            *"unshare --mount --uts --pid --fork --mount-proc".split(),
            "--kill-child",
            *("sh", "-c", _IN_NODE, str(self.folder / "hosts"), _NODES[index]),
        ]

    def call(self, *words: str, cwd: Path | None = None) -> str:
        """Runs a command of Slurm on the first node; returns what it says."""
        done = subprocess.run(
            [*self.node_command(0), *words],
            cwd=cwd,
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECS,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def is_idle(self) -> bool:
        """Whether both nodes are up and have no job."""
        said = self.call("sinfo", "--noheader", "--format=%t %D")
        return said.split() == ["idle", "2"]

    def environ(self) -> dict[str, str]:
        """Returns the variables with which Slurm finds its files."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Starts the daemons, and ends them and all that they have started.

    Args:
        folder: For the files of the daemons; short, as it holds a socket.
    """
    with contextlib.ExitStack() as stack:
        pair = stack.enter_context(hosts.connected())
        addresses = [host.address.partition(":")[0] for host in pair]
        cluster = Cluster(folder, tuple(host.name for host in pair))
        _write_files(folder, addresses)
        files = [
            f"--{name.replace('_', '-')}={folder}/munge.{name}"
            for name in ("socket", "key_file", "pid_file", "log_file")
        ]
        munged = ["munged", "--foreground", "--force", *files]
        munged.append(f"--seed-file={folder}/munge.seed")
        _start(stack, cluster, munged)
        wait_until(lambda: (folder / "munge.socket").exists())
        _start(stack, cluster, [*cluster.node_command(0), "slurmctld", "-D"])
        for index in range(2):
            words = [*cluster.node_command(index), "slurmd", "-D"]
            _start(stack, cluster, words)
        wait_until(cluster.is_idle)
        yield cluster


def _write_files(folder: Path, addresses: Sequence[str]) -> None:
    (folder / "state").mkdir()
    for name in _NODES:
        (folder / name).mkdir()
    key = folder / "munge.key_file"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    lines = [f"{a} {n}\n" for a, n in zip(addresses, _NODES, strict=True)]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
    config = _CONFIG.format(
        folder=folder, addresses=addresses, cpus=os.cpu_count()
    )
    (folder / "slurm.conf").write_text(config)


def _start(
    stack: contextlib.ExitStack, cluster: Cluster, words: Sequence[str]
) -> None:
    log = stack.enter_context((cluster.folder / "daemons.log").open("a"))
    daemon = subprocess.Popen(
        words,
        env=cluster.environ(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    stack.callback(daemon.wait)
    # The end of a node's first process is the end of all in it.
    stack.callback(daemon.kill)


def wait_until(is_so: Callable[[], bool], secs: float = DEADLINE_SECS) -> None:
    """Polls until something is so; fails after the deadline."""
    deadline = time.monotonic() + secs
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
