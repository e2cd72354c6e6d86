"""The calls of gcloud, and what the hosts would run, with stand-ins for both.

`ssh` runs its command on this machine, in a folder that plays the home of every
host; Python there notes how it was called.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flags.command_line import Configs
from tests import processes

FOLDER = processes.ROOT / "deploy" / "tpu_vm"
SCRIPT = FOLDER / "tpu_vm.sh"
NAMES = {
    "TPU_VM": "my-tpu",
    "ZONE": "us-west4-a",
    "ACCELERATOR_TYPE": "v5litepod-8",
    "MODEL_DIR": "gs://my-bucket/first",
}
VM = ["compute", "tpus", "tpu-vm"]
NOTED = ("TPU_LOAD_LIBRARY", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH")

GCLOUD = f"""#!{sys.executable}
import json, os, shutil, subprocess, sys
words = sys.argv[1:]
with open("../calls", "a") as file:
    file.write(json.dumps(words) + "\\n")
if "describe" in words:
    print(os.environ["HOSTS"])
if "scp" in words:
    shutil.copy(words[4], words[5].split(":")[1])
command = words[-1].removeprefix("--command=")
if "ssh" in words and not command.startswith("tail"):
    sys.exit(subprocess.run(["bash", "-c", command]).returncode)
"""
HOST_PYTHON = f"""#!{sys.executable}
import json, os, sys, time
if "import libtpu" in sys.argv[-1]:
    sys.exit(print("/libtpu.so"))
noted = [sys.argv[1:], {{name: os.environ.get(name) for name in {NOTED}}}]
with open("noted.new", "w") as file:
    json.dump(noted, file)
os.rename("noted.new", "server" if sys.argv[1] == "-c" else "train")
while sys.argv[1] != "-c":
    time.sleep(60)
"""
# Makes what `python3.11 -m venv .venv` makes.
MAKE_VENV = """#!/usr/bin/env bash
mkdir -p .venv/bin
cp ../../bin/host_python .venv/bin/python
echo 'echo "$@" > pip' > .venv/bin/pip
chmod +x .venv/bin/*
"""
FILES = {
    "gcloud": GCLOUD,
    "host_python": HOST_PYTHON,
    "python3.11": MAKE_VENV,
    "sudo": "#!/bin/sh\n",
}


@pytest.fixture
def cloud(tmp_path) -> Path:
    """Returns a folder with `bin`, and `home`, the home of every host."""
    for folder in ("bin", "home"):
        (tmp_path / folder).mkdir()
    for name, text in FILES.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def _run(
    cloud: Path, *words: str, hosts: str = "10.0.0.1", **changes: str
) -> subprocess.CompletedProcess[str]:
    path = f"{cloud / 'bin'}:{os.environ['PATH']}"
    names = {"PATH": path, "HOME": str(cloud), "HOSTS": hosts}
    return subprocess.run(
        ["bash", *words],
        cwd=cloud / "home",
        env={**names, **NAMES, **changes},
        capture_output=True,
        text=True,
        timeout=processes.DEADLINE_SECS,
    )


def _calls(cloud: Path) -> list[list[str]]:
    lines = (cloud / "calls").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _noted(cloud: Path, what: str) -> tuple[list[str], dict[str, str]]:
    path = cloud / "home" / "training_template" / what
    deadline = time.monotonic() + processes.DEADLINE_SECS
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    words, variables = json.loads(path.read_text())
    return words, variables


def _check_flags(words: list[str]) -> None:
    names = {
        field.name
        for config in Configs()
        for field in dataclasses.fields(config)
    }
    assert {word[2:].partition("=")[0] for word in words[1:]} <= names


def test_the_readme_leads_to_a_run_and_back(cloud) -> None:
    text = (FOLDER / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    script = "set -e\n" + "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S))
    script = script.replace("deploy/tpu_vm/", f"{FOLDER}/")
    # Between `watch` and `stop` the user waits, here for the start.
    wait = "while [ ! -e training_template/train ]; do sleep 0.01; done\n"
    script = script.replace(f"{SCRIPT} stop", f"{wait}{SCRIPT} stop")
    done = _run(cloud, "-c", script)
    assert done.returncode == 0, done.stderr
    words, variables = _noted(cloud, "train")
    assert words == [
        "train.py",
        "--strategy=tpu",
        "--tpu=local",
        "--model_dir=gs://my-bucket/first",
        "--model=cnn",
        "--global_batch_size=1024",
    ]
    _check_flags(words)
    assert variables == {
        "TPU_LOAD_LIBRARY": None,
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/libtpu.so",
    }
    home = cloud / "home" / "training_template"
    assert (home / "pip").read_text() == "install --quiet --editable .[tpu]\n"
    assert (home / "train.py").exists()
    assert not (home / ".git").exists()
    calls = _calls(cloud)
    verbs = [call[3] for call in calls if call[:3] == VM]
    assert verbs == "create scp ssh describe ssh ssh ssh delete".split()
    for call in calls[-8:]:
        assert "--zone=us-west4-a" in call
        assert "my-tpu" in " ".join(call)
    assert calls[-8][-2:] == [
        "--accelerator-type=v5litepod-8",
        "--version=v2-alpha-tpuv5-lite",
    ]
    assert "--worker=all" in calls[-7]
    assert "--worker=all" in calls[-6]
    assert "--worker=0" in calls[-4]
    assert calls[-1][-1] == "--quiet"


def test_a_slice_has_a_server_on_each_host(cloud) -> None:
    _run(cloud, str(SCRIPT), "install")
    done = _run(
        cloud, str(SCRIPT), "start", "--model=c n", hosts="10.0.0.1;10.0.0.2"
    )
    assert done.returncode == 0, done.stderr
    words, variables = _noted(cloud, "train")
    assert words[2] == "--tpu=grpc://10.0.0.1:8470,grpc://10.0.0.2:8470"
    assert words[-1] == "--model=c n"
    assert variables["TPU_LOAD_LIBRARY"] == "0"
    assert variables["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"] is None
    (option, program), variables = _noted(cloud, "server")
    assert option == "-c"
    compile(program, "server", "exec")
    assert variables["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"] == "/libtpu.so"
    ssh = [call for call in _calls(cloud) if "ssh" in call]
    assert ["--worker=all" in call for call in ssh] == [True, True, False]
    assert _run(cloud, str(SCRIPT), "stop").returncode == 0


def test_a_tpu_without_addresses_is_one_line(cloud) -> None:
    done = _run(cloud, str(SCRIPT), "start", hosts="")
    assert done.returncode == 2
    assert done.stderr == (
        "tpu_vm.sh: my-tpu has no addresses yet; try again later.\n"
    )


def test_the_newer_runtime_can_be_left_out(cloud) -> None:
    _run(cloud, str(SCRIPT), "install")
    _run(cloud, str(SCRIPT), "start", PJRT="0")
    _, variables = _noted(cloud, "train")
    assert set(variables.values()) == {None}
    assert _run(cloud, str(SCRIPT), "stop").returncode == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ACCELERATOR_TYPE": "v6e-8"}, ["--version=v2-alpha-tpuv6e"]),
        ({"ACCELERATOR_TYPE": "v5p-8"}, ["--version=v2-alpha-tpuv5"]),
        ({"ACCELERATOR_TYPE": "v4-8"}, ["--version=tpu-ubuntu2204-base"]),
        ({"RUNTIME_VERSION": "mine"}, ["--version=mine"]),
        (
            {"SPOT": "1"},
            ["--version=v2-alpha-tpuv5-lite", "--spot"],
        ),
    ],
    ids=str,
)
def test_the_image_fits_the_chips(cloud, changes, expected) -> None:
    assert _run(cloud, str(SCRIPT), "create", **changes).returncode == 0
    (call,) = _calls(cloud)
    assert call[-len(expected) :] == expected


@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        ([], {}, "'' is none of create, install"),
        (["reboot"], {}, "'reboot' is none of create"),
        (["create"], {"TPU_VM": ""}, "TPU_VM is not set"),
        (["delete"], {"ZONE": ""}, "ZONE is not set"),
        (["create"], {"ACCELERATOR_TYPE": ""}, "ACCELERATOR_TYPE is not set"),
        (["start"], {"MODEL_DIR": ""}, "MODEL_DIR is not set"),
        (["start"], {"MODEL_DIR": "runs/a"}, "MODEL_DIR=runs/a is not gs://"),
    ],
    ids=str,
)
def test_what_is_missing_is_one_line(cloud, words, changes, message) -> None:
    done = _run(cloud, str(SCRIPT), *words, **changes)
    assert done.returncode == 2
    assert done.stderr.startswith(f"tpu_vm.sh: {message}")
    assert done.stderr.count("\n") == 1
    assert not (cloud / "calls").exists()


def test_gcloud_must_be_there(cloud) -> None:
    done = _run(cloud, str(SCRIPT), "create", PATH=f"{cloud / 'bin'}:/bin")
    assert done.returncode == 0
    (cloud / "bin" / "gcloud").unlink()
    (cloud / "bin" / "dirname").symlink_to("/usr/bin/dirname")
    (cloud / "bin" / "bash").symlink_to("/bin/bash")
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT), "create"],
        env={**NAMES, "PATH": str(cloud / "bin")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "gcloud is not installed" in done.stderr


def test_the_syntax_is_right() -> None:
    for path in FOLDER.glob("*.sh"):
        subprocess.run(["bash", "-n", str(path)], check=True)


def test_a_second_start_is_refused(cloud) -> None:
    folder = cloud / "home" / "training_template"
    folder.mkdir()
    (folder / "train.pid").write_text(f"{os.getpid()}\n")
    done = _run(cloud, SCRIPT, "start")
    assert done.returncode == 2
    assert "a training runs already" in done.stderr
    assert not (folder / "train").exists()
