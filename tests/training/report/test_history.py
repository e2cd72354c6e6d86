import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from tests import object_store
from tests.training.report import runs
from training import metrics_log
from training.report import history as history_lib


def test_lines_become_columns(tmp_path) -> None:
    history = history_lib.read(runs.write(tmp_path / "a"))
    assert history.name == "a"
    assert history.step == 40
    steps, values = history.line("train", "loss")
    assert steps.tolist() == [10, 20, 30, 40]
    np.testing.assert_array_equal(values, [2.0, 1.0, np.nan, 0.5])
    steps, values = history.line("eval", "accuracy")
    assert (steps.tolist(), values.tolist()) == ([20, 40], [0.5, 0.75])
    assert history.names(("eval",)) == ["loss", "accuracy", "examples"]
    assert [len(each) for each in history.line("eval", "other")] == [0, 0]


def test_an_update_adds_what_is_new(tmp_path) -> None:
    folder = runs.write(tmp_path)
    history = history_lib.read(folder)
    history.update()
    assert history.line("eval", "loss")[0].tolist() == [20, 40]
    metrics_log.append(folder, 50, "eval", {"loss": 0.25})
    history.update()
    assert history.line("eval", "loss")[1].tolist() == [1.25, 1.5, 0.25]
    assert history.step == 50


def test_evaluations_of_a_follower_are_their_own(tmp_path) -> None:
    folder = runs.write(tmp_path)
    follower = tmp_path / history_lib.EVALUATOR
    runs.write(follower, [runs.evaluation(60, loss=0.75)])
    history = history_lib.read(folder)
    assert history.line("eval", "loss")[0].tolist() == [20, 40]
    assert history.line("evaluator", "loss")[1].tolist() == [0.75]
    assert history.step == 60


def test_words_and_lists_are_passed_over(tmp_path) -> None:
    line = runs.train(10, loss=1.0) | {"note": "<b>", "list": [1]}
    history = history_lib.read(runs.write(tmp_path, [line]))
    assert history.names() == ["loss"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("loss", (1.5, 1.25, 20)), ("accuracy", (0.75, 0.75, 40))],
)
def test_less_loss_and_more_accuracy_are_better(tmp_path, name, wanted) -> None:
    assert history_lib.read(runs.write(tmp_path)).best(name) == wanted


def test_gaps_are_not_the_best(tmp_path) -> None:
    lines = [runs.train(step, loss=None, error=None) for step in (1, 3)]
    lines.insert(1, runs.train(2, loss=7.0, error=None))
    history = history_lib.read(runs.write(tmp_path, lines))
    judged = history.best("loss")
    assert judged
    assert (judged.best, judged.step) == (7.0, 2)
    assert np.isnan(judged.last)
    assert history.best("error") is None


def test_an_integer_of_any_length_is_a_gap(tmp_path) -> None:
    line = runs.train(10, loss=1.0) | {"examples": 10**400}
    history = history_lib.read(runs.write(tmp_path, [line]))
    assert np.isnan(history.line("train", "examples")[1]).all()


def test_an_object_store_is_read_too(tmp_path, monkeypatch) -> None:
    store = object_store.make(monkeypatch, tmp_path.name)
    metrics_log.append(store, 10, "train", {"loss": 2.0})
    history = history_lib.read(store)
    metrics_log.append(store, 20, "train", {"loss": 1.0})
    history.update()
    assert history.line("train", "loss")[1].tolist() == [2.0, 1.0]
    assert history.name == tmp_path.name


def test_a_folder_without_a_run_is_refused(tmp_path) -> None:
    with pytest.raises(RequestError, match=r"has no metrics\.jsonl"):
        history_lib.read(str(tmp_path / "missing"))
    with pytest.raises(RequestError, match=r"has no metrics\.jsonl"):
        history_lib.read(runs.write(tmp_path, []))


def test_metrics_that_cannot_be_read_are_refused(tmp_path, monkeypatch) -> None:
    def read(*_: object) -> None:
        raise tf.errors.PermissionDeniedError(
            None, None, "a; Permission denied"
        )

    monkeypatch.setattr(metrics_log, "read", read)
    with pytest.raises(RequestError, match=r"cannot be read .*Perm"):
        history_lib.read(str(tmp_path))


def test_metrics_that_are_no_text_are_refused(tmp_path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(RequestError, match="cannot be read"):
        history_lib.read(str(tmp_path))
