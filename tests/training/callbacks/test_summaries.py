from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import object_store
from training.callbacks import Context
from training.callbacks import summaries


def _events(folder: Path) -> Iterator[tuple[str, int, object]]:
    """Yields tag, step and value of what is in the files of a folder."""
    for path in sorted(folder.iterdir()):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            if event.graph_def:
                yield "graph", event.step, event.graph_def
            for value in event.summary.value:
                yield value.tag, event.step, value


def _read(folder: Path) -> dict[tuple[str, int], float]:
    return {
        (tag, step): tf.make_ndarray(value.tensor).item()
        for tag, step, value in _events(folder)
        if tag.startswith(("metrics/", "optimizer/", "speed/", "solvers/"))
    }


def _context(
    model_dir: object, is_chief: bool = True, **more: object
) -> Context:
    return Context(None, str(model_dir), is_chief, 0, 8, **more)


def test_scalars_can_be_read_back(tmp_path) -> None:
    callback = summaries.make(_context(tmp_path))
    callback.on_train_begin()
    callback.on_train_batch_end(4, {"loss": 0.5, "learning_rate": 0.1})
    callback.on_test_end({"loss": 0.75, "examples": 359})
    callback.on_train_batch_end(8, {"loss": 0.25, "learning_rate": 0.1})
    callback.on_train_end()
    train = _read(tmp_path / "summaries" / "train")
    assert train["metrics/loss", 4] == 0.5
    assert train["metrics/loss", 8] == 0.25
    assert train["optimizer/learning_rate", 4] == pytest.approx(0.1)
    # The same tag: one chart. How many examples there are is no curve.
    evaluated = _read(tmp_path / "summaries" / "eval")
    assert evaluated == {("metrics/loss", 4): 0.75}


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("accuracy", "metrics"),
        ("gradient_norm", "optimizer"),
        ("skipped_steps", "optimizer"),
        ("examples_per_sec", "speed"),
        ("input_wait_share", "speed"),
        ("fixed_point_iterations", "solvers"),
    ],
)
def test_tags_form_a_few_sections(tmp_path, name, section) -> None:
    callback = summaries.make(_context(tmp_path))
    callback.on_train_batch_end(4, {name: 1.0})
    assert _read(tmp_path / "summaries" / "train") == {
        (f"{section}/{name}", 4): 1.0
    }


def test_flags_are_text_and_hyperparameters(tmp_path) -> None:
    config = {"train": {"optimizer": "adam", "train_steps": 8}}
    callback = summaries.make(_context(tmp_path, config=config))
    callback.on_train_begin()
    found = {
        tag: value for tag, _, value in _events(tmp_path / "summaries" / "eval")
    }
    text = tf.make_ndarray(found["flags"].tensor).item().decode()
    assert "| optimizer | adam |" in text
    plugin = found["_hparams_/session_start_info"].metadata.plugin_data
    assert plugin.plugin_name == "hparams"
    for word in (b"optimizer", b"adam", b"train_steps", tmp_path.name.encode()):
        assert word in plugin.content


def test_pictures_at_each_evaluation_and_the_graph_once(
    tmp_path, monkeypatch
) -> None:
    picture = np.zeros([2, 3, 3], np.uint8)
    graph = tf.Graph().as_graph_def()
    graph.node.add(name="dense", op="NoOp")
    drawn = iter([({"predictions/a": picture}, graph), ({}, None)])
    monkeypatch.setattr(
        summaries._look, "make", lambda context: lambda: next(drawn)
    )
    callback = summaries.make(_context(tmp_path))
    for step in (4, 8):
        callback.on_train_batch_end(step, {"loss": 0.5})
        callback.on_test_end({"loss": 0.5})
    callback.on_train_end()
    events = list(_events(tmp_path / "summaries" / "eval"))
    assert [e[1] for e in events if e[0] == "predictions/a"] == [4]
    (written,) = (value for tag, _, value in events if tag == "graph")
    assert b"dense" in written


def test_a_model_that_cannot_be_looked_at_goes_on(
    tmp_path, monkeypatch, capsys
) -> None:
    def draw() -> None:
        raise ValueError("needs its replicas\nand more")

    monkeypatch.setattr(summaries._look, "make", lambda context: draw)
    callback = summaries.make(_context(tmp_path))
    callback.on_test_end({"loss": 0.5})
    callback.on_test_end({"loss": 0.5})
    assert capsys.readouterr().out == (
        "step 0: no pictures for TensorBoard: ValueError: needs its replicas\n"
    )
    assert _read(tmp_path / "summaries" / "eval")


def test_other_workers_write_nothing(tmp_path) -> None:
    callback = summaries.make(_context(tmp_path, is_chief=False))
    callback.on_train_begin()
    callback.on_train_batch_end(4, {"loss": 0.5})
    callback.on_test_end({"loss": 0.75})
    callback.on_train_end()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_does_not_end_the_run(
    tmp_path, monkeypatch, capsys
) -> None:
    writer = summaries.create_writer(str(tmp_path), "train")

    def flush() -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "a; No space left")

    monkeypatch.setattr(writer, "flush", flush)
    summaries.write(writer, {4: {"loss": 0.5}})
    out = capsys.readouterr().out
    assert out == "step 4: the summaries could not be written: No space left.\n"


def test_an_object_store_is_not_written_for_each_scalar(
    tmp_path, monkeypatch
) -> None:
    store = object_store.make(monkeypatch, tmp_path.name)
    callback = summaries.make(_context(store))
    (path,) = (
        tf.io.gfile.join(folder, name)
        for folder, _, names in tf.io.gfile.walk(f"{store}/summaries/train")
        for name in names
    )
    start = tf.io.gfile.stat(path).length
    for step in range(20):
        callback.on_train_batch_end(step, {"loss": 0.5})
    assert tf.io.gfile.stat(path).length == start
    # The time for an upload has come.
    monkeypatch.setattr(callback, "_secs", 0.0)
    callback.on_test_end({"loss": 0.5})
    length = tf.io.gfile.stat(path).length
    assert length > start
    monkeypatch.undo()
    callback.on_train_batch_end(21, {"loss": 0.5})
    assert tf.io.gfile.stat(path).length == length
    callback.on_train_end()
    assert tf.io.gfile.stat(path).length > length
