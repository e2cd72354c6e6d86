import importlib.util

import pytest

from errors import RequestError
from tests.training.report import runs
from training.report import write


def test_one_run_has_its_page_in_its_folder(tmp_path) -> None:
    folder = runs.write(tmp_path / "a")
    assert write.write([folder, folder]) == f"{folder}/report.html"
    assert "<title>a</title>" in (tmp_path / "a" / "report.html").read_text()


def test_several_runs_are_compared_where_it_is_asked(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [runs.write(tmp_path / name) for name in "ab"]
    assert write.write(folders) == "compare.html"
    assert write.write(folders, "other.html") == "other.html"
    page = (tmp_path / "compare.html").read_text()
    assert "Runs compared" in page
    assert (tmp_path / "other.html").read_text() == page
    assert not list(tmp_path.glob("*.tmp"))


def test_a_place_that_cannot_be_written_is_refused(tmp_path) -> None:
    folder = runs.write(tmp_path / "a")
    with pytest.raises(RequestError, match=r"cannot be written: .*--output"):
        write.write([folder], str(tmp_path / "missing" / "compare.html"))


def test_matplotlib_is_asked_for_first(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match="Matplotlib"):
        write.write([str(tmp_path)])
