import json
import math

import pytest
import tensorflow as tf

from tests import object_store
from training import metrics_log


def _lines(folder) -> list[dict]:
    text = (folder / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_one_object_a_line(tmp_path) -> None:
    metrics_log.append(str(tmp_path), 3, "train", {"loss": 0.5})
    metrics_log.append(str(tmp_path), 4, "eval", {"loss": 0.25})
    first, second = _lines(tmp_path)
    assert (first["step"], first["split"], first["loss"]) == (3, "train", 0.5)
    assert (second["step"], second["split"]) == (4, "eval")
    assert 1.7e9 < first["time"] <= second["time"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null(tmp_path, value) -> None:
    metrics_log.append(str(tmp_path), 1, "train", {"loss": value})
    assert _lines(tmp_path)[0]["loss"] is None


def test_cut_keeps_up_to_the_step(tmp_path) -> None:
    for step in (10, 20, 30):
        metrics_log.append(str(tmp_path), step, "train", {"loss": 1.0})
    metrics_log.append(str(tmp_path), 20, "eval", {"loss": 1.0})
    metrics_log.cut(str(tmp_path), 20)
    assert [line["step"] for line in _lines(tmp_path)] == [10, 20, 20]


def test_cut_removes_a_torn_line(tmp_path) -> None:
    metrics_log.append(str(tmp_path), 10, "train", {"loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"time": 1, "step": 1')
    metrics_log.cut(str(tmp_path), 20)
    assert [line["step"] for line in _lines(tmp_path)] == [10]


def test_cut_needs_no_file(tmp_path) -> None:
    metrics_log.cut(str(tmp_path), 20)
    assert not list(tmp_path.iterdir())


def test_steps_are_those_of_whole_lines(tmp_path) -> None:
    assert metrics_log.steps(str(tmp_path)) == set()
    for step in (10, 20, 20):
        metrics_log.append(str(tmp_path), step, "eval", {"loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"time": 1, "step": 1')
    assert metrics_log.steps(str(tmp_path)) == {10, 20}


def test_read_gives_what_the_lines_hold(tmp_path) -> None:
    assert list(metrics_log.read(str(tmp_path))) == []
    for step, loss in [(10, 1.0), (20, math.nan), (30, 0.5)]:
        metrics_log.append(str(tmp_path), step, "train", {"loss": loss})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"time": 1, "step": 4')
    found = list(metrics_log.read(str(tmp_path)))
    assert [(line["step"], line["loss"]) for line in found] == [
        (10, 1.0),
        (20, None),
        (30, 0.5),
    ]
    later = metrics_log.read(str(tmp_path), after=20)
    assert [line["step"] for line in later] == [30]


def test_an_object_store_has_a_file_for_each_line(
    tmp_path, monkeypatch
) -> None:
    store = object_store.make(monkeypatch, tmp_path.name)
    metrics_log.cut(store, 0)
    assert metrics_log.steps(store) == set()
    for step in (20, 3, 100):
        metrics_log.append(store, step, "train", {"loss": math.nan})
    metrics_log.append(store, 20, "eval", {"loss": 0.5})
    assert metrics_log.steps(store) == {3, 20, 100}
    found = [(line["step"], line["split"]) for line in metrics_log.read(store)]
    assert found == [(3, "train"), (20, "eval"), (20, "train"), (100, "train")]
    assert [line["step"] for line in metrics_log.read(store, 20)] == [100]
    metrics_log.cut(store, 20)
    names = sorted(tf.io.gfile.listdir(f"{store}/metrics"))
    texts = [object_store.read(f"{store}/metrics/{name}") for name in names]
    lines = [json.loads(text) for text in "".join(texts).splitlines()]
    assert [line["step"] for line in lines] == [3, 20, 20]
    assert [line["loss"] for line in lines] == [None, 0.5, None]
