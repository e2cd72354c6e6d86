import dataclasses
import json
import math
from pathlib import Path

import pytest

from errors import RequestError
from rehearsal import report
from rehearsal.compilation import Compiled
from rehearsal.report import Inputs
from tests.rehearsal import test_compilation
from tests.rehearsal.test_compare import GOOD
from tests.rehearsal.test_plan import EXAMPLE

FITS = Compiled(EXAMPLE, test_compilation.REPLY)
INPUTS = Inputs([[32, 8, 6, 1]], [1, 1, 2, 1], 2)
FITS_NOT = Compiled(EXAMPLE, test_compilation.TOO_LARGE)


def test_writes_both_files(tmp_path, capsys) -> None:
    folder = Path(report.make_folder(str(tmp_path / "new")))
    report.write(str(folder), GOOD, [FITS], INPUTS)
    content = json.loads((folder / "rehearsal.json").read_text())
    assert content["max_loss_difference"] == 1e-7
    assert content["max_weight_difference"] == 1e-5
    assert content["bytes_per_core"] == 4.0e9
    assert content["fits"] is True
    assert len(content["collectives"]) == 2
    assert content["topologies"][0]["name"] == "v5e:2x2"
    assert content["topologies"][0]["plan"]["replicas"] == 2
    assert content["topologies"][0]["step_secs"] > 0
    html = (folder / "rehearsal.html").read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert str(folder / "rehearsal.html") in capsys.readouterr().out


def test_what_does_not_fit_is_told_too() -> None:
    content = report.summary(GOOD, [FITS_NOT], INPUTS)
    assert content["fits"] is False
    assert content["bytes_per_core"] == 20e9
    assert content["collectives"] == []


def test_nothing_need_be_compiled() -> None:
    content = report.summary(GOOD, [], INPUTS)
    assert content["fits"] is None
    assert content["topologies"] == []


def test_what_is_no_number_is_null() -> None:
    checked = dataclasses.replace(GOOD, loss_difference=math.inf)
    content = report.summary(checked, [FITS], INPUTS)
    assert content["max_loss_difference"] is None
    assert content["run"]["loss_difference"] is None
    json.dumps(content, allow_nan=False)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RequestError, match="Not a directory"):
        report.make_folder(str(tmp_path / "file" / "run"))


@pytest.mark.parametrize("model_dir", ["", "gs://bucket/run"])
def test_a_bucket_is_left_to_the_real_run(
    tmp_path, monkeypatch, model_dir
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = report.make_folder(model_dir)
    assert folder.startswith("runs/rehearsal-")
    assert Path(folder).is_dir()
