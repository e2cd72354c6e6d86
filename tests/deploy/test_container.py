"""The image: its file, what goes into it, and how it is run.

No engine is needed: what is copied is copied here, and what is run is run with
the same rights, on a root file system that is as read-only.
"""

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from tests import processes

FOLDER = processes.ROOT / "deploy" / "container"
FILE = FOLDER / "Containerfile"
JOB = processes.ROOT / "deploy" / "kubernetes" / "job.yaml"


def _commands(kind: str) -> list[str]:
    """Returns what follows each RUN, COPY, … of the file."""
    text = FILE.read_text().replace("\\\n", "")
    return re.findall(rf"^{kind} (.*)$", text, re.M)


def _context() -> Iterator[Path]:
    """Yields the paths that the ignore file leaves of the repository."""
    patterns = [
        line
        for line in (FOLDER / "Containerfile.dockerignore").read_text().split()
        if line[0] in "!*"
    ]
    everything, *kept, never = patterns
    assert (everything, never) == ("*", "**/__pycache__")
    for top in processes.ROOT.iterdir():
        if any(fnmatch(f"!{top.name}", pattern) for pattern in kept):
            below = top.rglob("*") if top.is_dir() else [top]
            for path in below:
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path.relative_to(processes.ROOT)


@pytest.fixture(scope="module")
def context(tmp_path_factory) -> Path:
    """Returns a folder as /app of the image will be."""
    app = tmp_path_factory.mktemp("image") / "app"
    for path in _context():
        (app / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(processes.ROOT / path, app / path)
    return app


def test_a_linter_finds_nothing() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, FILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_holds_the_program_and_no_more(context) -> None:
    paths = {str(path) for path in _context()}
    tops = {path.partition("/")[0] for path in paths}
    assert not tops & {"tests", "benchmarks", "docs", "runs", ".git", ".venv"}
    for package in ("data", "flags", "model", "strategies", "training"):
        for path in (processes.ROOT / package).rglob("*.py"):
            assert str(path.relative_to(processes.ROOT)) in paths
    assert sum((context / path).stat().st_size for path in paths) < 2**21
    for command in _commands("COPY"):
        for name in command.split()[:-1]:
            assert (context / name).exists()
    # Without TensorFlow: all that the flags need is there.
    done = subprocess.run(
        [sys.executable, "train.py", "--help"], cwd=context, capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_what_is_installed_is_what_was_tested(context) -> None:
    config = configparser.ConfigParser()
    config.read(processes.ROOT / "setup.cfg")
    extras = set(re.findall(r"EXTRA=(\w+)", FILE.read_text()))
    assert extras == {"cpu", "gpu"} <= config["options.extras_require"].keys()
    (base,) = _commands("FROM")
    assert base.startswith("python:3.11-")


@pytest.mark.slow
def test_the_image_can_be_installed(context) -> None:
    install, *_ = _commands("RUN")
    words = install.replace('"', "").replace("${EXTRA}", "cpu").split()
    assert words[:2] == ["pip", "install"]
    assert words[-3:] == ["--constraint", "constraints.txt", ".[cpu]"]
    # From the image's files alone, and with what is installed here.
    offline = ("--dry-run", "--no-index", "--no-build-isolation")
    done = subprocess.run(
        [sys.executable, "-m", *words, *offline],
        cwd=context,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


# Builds a root out of folders of this machine, all read-only, and becomes the
# user of the image, without any right, as process 1.
_ENTER = r"""
set -e
root=$1 app=$2 runs=$3 user=$4 prefixes=$5
shift 5
mount -t tmpfs tmpfs "$root"
cd "$root"
mkdir app runs tmp proc dev
# First, as the folders to show may be in it.
mount -t tmpfs tmpfs tmp
show() {
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  mount -o remount,bind,ro "$root$2"
}
for top in bin etc lib lib64 sbin usr; do
  if [ -L /$top ]; then cp -P /$top .; else show /$top /$top; fi
done
for prefix in $prefixes; do show "$prefix" "$prefix"; done
show "$app" /app
mount --rbind /dev dev
mount -t proc proc proc
mount --bind "$runs" runs
mount -o remount,ro "$root"
exec chroot "$root" /bin/sh -c 'cd /app && exec "$@"' sh \
  setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs \
  --bounding-set=-all --inh-caps=-all "$@"
"""


def _start(context: Path, folder: Path, *flags: str) -> subprocess.Popen[str]:
    """Starts the program as the image and the Job's manifest say."""
    *_, job = yaml.safe_load_all(JOB.read_text())
    pod = job["spec"]["template"]["spec"]
    user = str(pod["securityContext"]["runAsUser"])
    assert _commands("USER") == [f"{user}:{user}"]
    (variables,) = _commands("ENV")
    python, program = json.loads(_commands("ENTRYPOINT")[0])
    assert python == "python"
    for name in ("root", "runs"):
        (folder / name).mkdir()
    os.chown(folder / "runs", int(user), int(user))
    places = (folder / "root", context, folder / "runs", user)
    prefixes = f"{sys.prefix} {sys.base_prefix}"
    return subprocess.Popen(
        [
            *"unshare --mount --pid --fork --kill-child sh -c".split(),
            *(_ENTER, "sh", *places, prefixes),
            *(sys.executable, program, *pod["containers"][0]["args"], *flags),
        ],
        env={
            "PATH": os.environ["PATH"],
            **dict(word.split("=") for word in variables.split()),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_runs_without_rights_on_a_read_only_root(context, tmp_path) -> None:
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("needs root and util-linux, to make a root of its own")
    process = _start(
        context,
        tmp_path,
        "--strategy=one_device",
        "--cluster=auto",
        "--model=mlp",
        "--steps_per_loop=100",
        "--eval_every_steps=0",
        "--train_steps=1000000",
    )
    processes.wait_for(process, "step 100/")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    (child,) = children.read_text().split()
    status = Path(f"/proc/{child}/status").read_text()
    assert re.search(r"^Uid:\t1000\t1000\t1000", status, re.M)
    assert re.search(r"^CapBnd:\t0+$", status, re.M)
    assert re.search(r"^NSpid:.*\t1$", status, re.M)
    # As process 1 it is spared by a signal that it does not listen to.
    os.kill(int(child), signal.SIGTERM)
    done = processes.finish(process)
    assert done.returncode == 42, done.stderr
    assert "of 1000000 is saved" in done.stderr
    saved = tmp_path / "runs" / "train" / "checkpoints"
    assert {path.stat().st_uid for path in saved.iterdir()} == {1000}
