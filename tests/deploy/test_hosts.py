"""The script that starts workers over ssh, with a stand-in for ssh.

The stand-in runs the command on this machine; its `python` notes how it was
called, then does as `python.sh` says.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.chaos import hosts
from tests.deploy import slurm_cluster

SCRIPT = processes.ROOT / "deploy" / "hosts" / "hosts.sh"
SSH = """#!/bin/sh
for word; do host=$command command=$word; done
HOST=$host exec sh -c "$command"
"""
PYTHON = """#!/bin/sh
{ echo "$TF_CONFIG"; printf '%s\\n' "$@"; } > "$HOST.called"
. ./python.sh
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, text in (("ssh", SSH), ("python", PYTHON)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "hosts").write_text("# two\nfirst\n\n  second:3333 # last\n")
    return tmp_path


def _start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", SCRIPT, *words],
        cwd=folder,
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "FOLDER": str(folder),
            "PYTHON": "./python",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _run(
    folder: Path, python: str, *words: str
) -> subprocess.CompletedProcess[str]:
    (folder / "python.sh").write_text(python)
    return processes.finish(_start(folder, *words))


def test_each_host_is_told_who_it_is(folder) -> None:
    done = _run(folder, "echo hello", "hosts", "--model=c n", "--x='$y'")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        "[first] hello",
        "[second] hello",
    ]
    for index, host in enumerate(["first", "second"]):
        config, *words = (folder / f"{host}.called").read_text().splitlines()
        assert json.loads(config) == {
            "cluster": {"worker": ["first:2222", "second:3333"]},
            "task": {"type": "worker", "index": index},
        }
        assert words == [
            "train.py",
            "--strategy=multi_worker_mirrored",
            "--model=c n",
            "--x='$y'",
        ]


def test_a_user_is_for_ssh_alone(folder) -> None:
    (folder / "hosts").write_text("me@first\nyou@second:3333\n")
    assert _run(folder, "exit 0", "hosts").returncode == 0
    for host in ("me@first", "you@second"):
        config, *_ = (folder / f"{host}.called").read_text().splitlines()
        workers = json.loads(config)["cluster"]["worker"]
        assert workers == ["first:2222", "second:3333"]


# Goes on until it is told to stop, then ends as an interrupted worker does.
WAIT = """
trap 'exit 42' TERM
echo waiting
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize(
    ("first", "code"),
    [("0", 42), ("1", 1), ("2", 2), ("42", 42), ("143", 42), ("255", 1)],
)
def test_one_that_ends_early_ends_the_others(folder, first, code) -> None:
    early = f'[ "$HOST" = second ] || exit {first}\n'
    if first == "0":
        early = '[ "$HOST" = second ] && exit 42\n'
    assert _run(folder, early + WAIT, "hosts").returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on(folder, number) -> None:
    (folder / "python.sh").write_text(WAIT)
    process = _start(folder, "hosts")
    lines = sorted(process.stdout.readline() for _ in range(2))
    assert lines == ["[first] waiting\n", "[second] waiting\n"]
    process.send_signal(number)
    assert processes.finish(process).returncode == 42


# Speaks all the time, and leaves a trace when it is stopped.
SPEAK = """
trap 'echo saving && touch "$HOST.saved"; exit 42' TERM
while :; do echo waiting; touch "$HOST.beat"; sleep 0.01; done
"""


def test_a_worker_saves_when_its_output_has_broken_off(folder) -> None:
    (folder / "python.sh").write_text(SPEAK)
    process = _start(folder, "hosts")
    process.stdout.readline()
    process.stdout.close()
    beats = [folder / f"{host}.beat" for host in ("first", "second")]
    for _ in range(20):
        for beat in beats:
            beat.unlink(missing_ok=True)
            slurm_cluster.wait_until(beat.exists)
    # The end of the script, by whatever, is the end of the connections.
    process.kill()
    for beat in beats:
        slurm_cluster.wait_until(beat.with_suffix(".saved").exists)
    process.stderr.close()
    process.wait()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "'' is no file that lists hosts, one a line."),
        (["nowhere"], "'nowhere' is no file that lists hosts, one a line."),
        (["empty"], "the list of hosts is empty; write one a line."),
    ],
    ids=["nothing", "no file", "no host"],
)
def test_a_list_without_hosts_is_refused(folder, words, message) -> None:
    (folder / "empty").write_text("# none\n")
    done = processes.finish(_start(folder, *words))
    assert (done.returncode, done.stderr) == (2, f"hosts.sh: {message}\n")


# Runs the command in the namespace that plays the host.
NAMESPACE_SSH = """#!/bin/sh
for word; do host=$command command=$word; done
exec ip netns exec "$(grep "^$host " {folder}/names | cut -d' ' -f2)" \
    sh -c "$command"
"""
FLAGS = (
    "--model=mlp",
    "--train_steps=6000",
    "--steps_per_loop=2000",
    "--eval_every_steps=0",
    "--checkpoint_every_steps=0",
    "--global_batch_size=8",
)


@pytest.mark.slow
def test_two_hosts_train_and_go_on(tmp_path: Path) -> None:
    if reason := hosts.missing():
        pytest.skip(reason)
    (tmp_path / "ssh").write_text(NAMESPACE_SSH.format(folder=tmp_path))
    (tmp_path / "ssh").chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
    }
    words = [tmp_path / "hosts", *FLAGS, f"--model_dir={tmp_path / 'run'}"]
    with hosts.connected() as pair:
        addresses = [host.address for host in pair]
        (tmp_path / "hosts").write_text("\n".join(addresses))
        names = [f"{h.address.partition(':')[0]} {h.name}\n" for h in pair]
        (tmp_path / "names").write_text("".join(names))

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(
                ["bash", SCRIPT, *words],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

        process = start()
        processes.wait_for(process, "[10.213.0.1] step 2000/")
        process.send_signal(signal.SIGTERM)
        done = processes.finish(process)
        assert done.returncode == 42, done.stdout
        assert done.stdout.count(" of 6000 is saved") == 2
        done = processes.finish(start())
    assert done.returncode == 0, done.stdout
    assert "[10.213.0.1] Continuing at step" in done.stdout
    assert "[10.213.0.2] 2 workers, 2 replicas" in done.stdout
