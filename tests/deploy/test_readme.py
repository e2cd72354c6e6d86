"""The index: everything in `deploy/` is in it, and what it names is there."""

import re

from tests import processes

FOLDER = processes.ROOT / "deploy"
TEXT = (FOLDER / "README.md").read_text()


def test_the_index_is_whole() -> None:
    assert len(TEXT.splitlines()) <= 40
    for path in FOLDER.iterdir():
        assert path.name == "README.md" or f"[{path.name}/]" in TEXT


def test_what_it_names_is_there() -> None:
    for link in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (FOLDER / link).exists(), link
    for path in re.findall(r"deploy/[\w./]+", TEXT):
        assert (processes.ROOT / path).exists(), path
    makefile = (processes.ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([\w-]+)", TEXT):
        assert f"\n{target}:" in makefile
