"""README and docs: no dead link, and no command that nobody has run."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import processes

ROOT = processes.ROOT
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/*.md", "deploy/**/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
# The pages whose commands are all looked after here.
WITH_COMMANDS = [
    p for p in PAGES if str(p) == "README.md" or p.parts[0] == "docs"
]

# Command → what makes it short. In this order, in one folder: some read what
# others wrote. `runs/a`, `runs/b` and `images.npy` are there.
RUN = {
    "python train.py": "--train_steps=20",
    "python train.py --help": "",
    "python train.py --strategy=mirrored": "--train_steps=20",
    "python train.py --strategy=mirrored --devices=cpu:0,cpu:1": (
        "--train_steps=20"
    ),
    "python train.py --mode=rehearse --strategy=tpu --tpu_topology=v5e:2x4": "",
    "python train.py --mode=rehearse --strategy=tpu --tpu_topology=v5e:2x2 "
    "--model=cnn --computation_shape=2,2,1,1 "
    "--partition_dimensions=1,2,2,1": "--rehearse_steps=1",
    "python launch.py --help": "",
    "python launch.py --num_workers=2 -- --model=cnn --train_steps=500": (
        "--train_steps=20"
    ),
    "python train.py --model=cnn --callbacks=progress,summaries,report": (
        "--train_steps=20"
    ),
    "python train.py --model=cnn --train_steps=200 --profile=100:110": (
        "--train_steps=30 --profile=10:20"
    ),
    "python train.py --model=cnn --mode=evaluate --model_dir=runs/a "
    "--checkpoint=best": "",
    "python train.py --model=cnn --initial_model=runs/a:freeze=conv_*": (
        "--train_steps=20"
    ),
    "python train.py --mode=scaling --model=cnn": "--scaling_secs=1",
    "python -m training.report runs/a": "",
    "python -m training.report runs/a runs/b": "",
    "python -m training.report runs/a runs/b --output=compare.html": "",
    "python -m predict runs/a/export/model.keras images.npy out.csv": "",
    "python -m predict runs/a/export/model.keras images.npy "
    "predictions.csv": "",
}
# Command → the test that runs it, or why none does.
ELSEWHERE = {
    "make train": ".ci/run",
    "make test": ".ci/run",
    "bash examples/two_workers.sh": "tests/examples/test_two_workers.py",
    "python -m examples.batched_matvec": (
        "tests/examples/test_batched_matvec.py"
    ),
    "python -m examples.finetune": "tests/examples/test_finetune.py",
    "make rehearse": "tests/test_rehearse.py",
    "make test-slurm": "tests/deploy/test_slurm.py",
    "make chaos": "tests/chaos/chaos.py",
    "make bench": "tests/benchmarks/test_main.py",
    "make test-tpu-wheel": "the suite itself, with another TensorFlow",
    "python -m benchmarks.checkpoint": "tests/benchmarks/test_checkpoint.py",
    "python -m tests.equivalence.table docs/equivalence.md": (
        "tests/equivalence/test_matrix.py"
    ),
    "python -m tensorboard.main --logdir runs": (
        "tests/training/callbacks/test_summaries.py"
    ),
    "python train.py --strategy=multi_worker_mirrored "
    "--model_dir=/shared/run": "tests/integration/test_two_workers.py",
    "python train.py --strategy=tpu --tpu=local": "needs a TPU",
    "python -m pip install -c constraints.txt -e '.[gpu,report]'": (
        "needs a GPU"
    ),
    "python -m pip install -e '.[tpu]'": "needs a TPU",
}
_STARTS = ("python ", "make ", "bash ")
# What stands for something else, or is no command: `make(context)`.
_OPEN = re.compile(r"[<…]|\($|--$")


def _commands(page: Path) -> Iterator[str]:
    text = (ROOT / page).read_text().replace("\\\n", " ")
    blocks = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
    inline = re.findall(r"`([^`\n]+)`", text)
    for found in (*blocks, *inline):
        command = re.sub(r"\s+", " ", found.partition(" #")[0]).strip()
        if command.startswith(_STARTS) and not _OPEN.search(command):
            yield command


def test_every_command_is_run_or_says_why_not() -> None:
    found = {each for page in WITH_COMMANDS for each in _commands(page)}
    assert found == RUN.keys() | ELSEWHERE.keys()
    for reason in ELSEWHERE.values():
        assert " " in reason or (ROOT / reason).exists(), reason


def _anchors(path: Path) -> set[str]:
    """Returns the names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_link_is_dead(page: Path) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert "://" not in target, f"nobody checks {target}"
        name, _, anchor = target.partition("#")
        path = (ROOT / page.parent / name) if name else ROOT / page
        assert path.exists(), target
        assert not anchor or anchor in _anchors(path), target


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_files_that_are_named_are_there(page: Path) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(
        r"`((?:tests|training|model|data|strategies|rehearsal|examples|"
        r"benchmarks|docs|deploy|flags)/[\w/.]*)`",
        text,
    )
    for name in named:
        assert (ROOT / name).exists(), name


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    """Returns a folder that looks like a clone in which two runs were made."""
    folder = tmp_path_factory.mktemp("clone")
    for entry in ROOT.iterdir():
        if entry.name not in ("runs", ".git") and entry.suffix != ".egg-info":
            (folder / entry.name).symlink_to(entry)
    for name in ("a", "b"):
        _run(
            folder,
            "python train.py --model=cnn --train_steps=20 --export=keras "
            f"--eval_every_steps=10 --model_dir=runs/{name}",
        )
    np.save(folder / "images.npy", np.zeros([3, 8, 8, 1], np.float32))
    return folder


def _run(folder: Path, command: str) -> None:
    _, *words = shlex.split(command)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=processes.DEADLINE_SECS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN)
def test_commands_of_the_docs(workspace, command) -> None:
    _run(workspace, f"{command} {RUN[command]}")
