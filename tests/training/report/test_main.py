import subprocess
import sys

import pytest

from tests.training.report import runs
from training.report.__main__ import main


def test_says_where_the_page_is(tmp_path, capsys) -> None:
    folder = runs.write(tmp_path / "a")
    assert main([folder]) == 0
    assert capsys.readouterr() == (f"{folder}/report.html\n", "")


def test_a_wrong_folder_is_one_sentence(tmp_path, capsys) -> None:
    folder = str(tmp_path / "missing")
    assert main([folder]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"python -m training.report: {folder}: has no metrics.jsonl with a "
        "line in it; give the folder of a run, its --model_dir.\n"
    )


def test_no_folder_is_refused(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 2
    assert "RUN" in capsys.readouterr().err


def test_the_command_explains_itself_without_tensorflow() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "training.report", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--output" in done.stdout
    assert "tensorflow" not in done.stderr
