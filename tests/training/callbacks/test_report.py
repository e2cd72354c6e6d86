import importlib.util

import pytest
import tensorflow as tf

from errors import RequestError
from tests.training.report import runs
from training import metrics_log
from training.callbacks import Context
from training.callbacks import report
from training.report import page


def _context(folder: object, is_chief: bool = True) -> Context:
    return Context(None, str(folder), is_chief, 0, 40)


@pytest.fixture
def written(monkeypatch) -> list[int]:
    """Steps up to which each page goes; none is drawn."""
    found: list[int] = []
    monkeypatch.setattr(page, "write", lambda h: found.append(h.step))
    return found


def _evaluate(callback, folder: str, step: int) -> None:
    metrics_log.append(folder, step, "train", {"loss": 1.0})
    callback.on_train_batch_end(step, {"loss": 1.0})
    metrics_log.append(folder, step, "eval", {"loss": 1.0})
    callback.on_test_end({"loss": 1.0})


def test_a_page_at_an_evaluation_and_at_the_end(tmp_path) -> None:
    callback = report.make(_context(runs.write(tmp_path)))
    callback.on_train_batch_end(20, {})
    assert not (tmp_path / "report.html").exists()
    callback.on_test_end({})
    first = (tmp_path / "report.html").read_text()
    assert "best 1.25 at step 20" in first
    metrics_log.append(str(tmp_path), 60, "eval", {"loss": 0.125})
    callback.on_train_end()
    assert "0.125" in (tmp_path / "report.html").read_text()
    assert not list(tmp_path.glob("*.tmp"))


def test_pages_take_a_small_share_of_the_time(
    tmp_path, monkeypatch, written
) -> None:
    now = 1000.0
    monkeypatch.setattr(report.time, "monotonic", lambda: now)

    def draw(history) -> None:
        nonlocal now
        written.append(history.step)
        now += 1.0

    monkeypatch.setattr(page, "write", draw)
    callback = report.make(_context(tmp_path))
    for step in range(1, 40):
        _evaluate(callback, str(tmp_path), step)
        now += 2.0
    # One second for each twenty: the first, then each tenth evaluation.
    assert written == [1, 11, 21, 31]


def test_the_last_page_is_written_once_and_always(tmp_path, written) -> None:
    callback = report.make(_context(tmp_path))
    _evaluate(callback, str(tmp_path), 20)
    _evaluate(callback, str(tmp_path), 40)
    callback.on_train_end()
    assert written == [20, 40]


def test_other_workers_write_nothing(tmp_path, written) -> None:
    callback = report.make(_context(tmp_path, is_chief=False))
    _evaluate(callback, str(tmp_path), 20)
    callback.on_train_end()
    assert written == []


@pytest.mark.parametrize("is_chief", [True, False])
def test_without_matplotlib_no_worker_begins(
    tmp_path, monkeypatch, is_chief
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match="pip install"):
        report.make(_context(tmp_path, is_chief))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (tf.errors.ResourceExhaustedError(None, None, "a; Full"), "Full"),
        (OSError(13, "Permission denied"), "Permission denied"),
        (ImportError("no _path"), "Matplotlib is broken: no _path"),
    ],
    ids=["full", "denied", "broken"],
)
def test_trouble_does_not_end_the_run(
    tmp_path, monkeypatch, capsys, error, words
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(page, "write", fail)
    callback = report.make(_context(tmp_path))
    callback.on_train_batch_end(20, {})
    callback.on_test_end({})
    callback.on_train_end()
    line = f"step 20: report.html could not be written: {words}.\n"
    assert capsys.readouterr().out == 2 * line
