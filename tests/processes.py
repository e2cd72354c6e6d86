"""Runs `train.py` as a user would: in processes of their own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import zygote

ROOT = Path(__file__).parent.parent
DEADLINE_SECS = 240
# What trains; the others are short without TensorFlow, or say what they import.
_FORKED = ("train.py", "-m")


def start(
    *flags: str,
    env: Mapping[str, str] | None = None,
    program: str = "train.py",
    is_new: bool = False,
) -> subprocess.Popen[str]:
    """Starts `python <program> <flags>` in the root of the repository.

    If it can, without importing TensorFlow anew: see `zygote`; `is_new` forbids
    it where a test is about what happens before that.
    """
    clean = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    forks = program in _FORKED and zygote.can_fork(env or {}) and not is_new
    return (zygote.Forked if forks else subprocess.Popen)(
        [program, *flags] if forks else [sys.executable, program, *flags],
        cwd=ROOT,
        env={**clean, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(
    process: subprocess.Popen[str], deadline: float = DEADLINE_SECS
) -> subprocess.CompletedProcess[str]:
    """Waits for the end of a process; kills it after the deadline."""
    try:
        out, err = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still running:\n{out}\n{err}") from None
    return subprocess.CompletedProcess(
        process.args, process.returncode, out, err
    )


def run(
    *flags: str, env: Mapping[str, str] | None = None, program: str = "train.py"
) -> subprocess.CompletedProcess[str]:
    """Runs `train.py` to its end."""
    return finish(start(*flags, env=env, program=program))


def run_workers(
    count: int,
    *flags: str,
    env: Mapping[str, str] | None = None,
    program: str = "train.py",
) -> list[subprocess.CompletedProcess[str]]:
    """Runs `count` workers on this machine to their end."""
    started = start_workers(count, *flags, env=env, program=program)
    return [finish(process) for process in started]


def start_workers(
    count: int,
    *flags: str,
    env: Mapping[str, str] | None = None,
    program: str = "train.py",
) -> list[subprocess.Popen[str]]:
    """Starts `count` workers on this machine."""
    return [
        start(
            *flags,
            env={**(env or {}), "TF_CONFIG": config},
            program=program,
        )
        for config in tf_configs(count)
    ]


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Reads what a process prints until a line begins with `words`."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith(words):
            return
    raise AssertionError(f"ended without {words!r}: {process.communicate()}")


def tf_configs(count: int) -> list[str]:
    """Returns one TF_CONFIG for each of `count` workers on free ports."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return [
        json.dumps(
            {
                "cluster": {"worker": addresses},
                "task": {"type": "worker", "index": index},
            }
        )
        for index in range(count)
    ]


def read_metrics(model_dir: Path, split: str) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl of one split."""
    text = (Path(model_dir) / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if line["split"] == split]


def losses(model_dir: Path) -> Sequence[float]:
    """Returns the training losses of a run, in order."""
    return [line["loss"] for line in read_metrics(model_dir, "train")]
