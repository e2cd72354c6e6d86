import pytest
import tensorflow as tf

from tests import object_store
from training.callbacks import Context
from training.callbacks import summaries


def _read(folder) -> dict[tuple[str, int], float]:
    found = {}
    for path in folder.iterdir():
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                number = tf.make_ndarray(value.tensor).item()
                found[value.tag, event.step] = number
    return found


def test_scalars_can_be_read_back(tmp_path) -> None:
    callback = summaries.make(Context(None, str(tmp_path), True, 0, 8))
    callback.on_train_batch_end(4, {"loss": 0.5, "learning_rate": 0.1})
    callback.on_test_end({"loss": 0.75})
    callback.on_train_batch_end(8, {"loss": 0.25, "learning_rate": 0.1})
    callback.on_train_end()
    train = _read(tmp_path / "summaries" / "train")
    assert train["loss", 4] == 0.5
    assert train["loss", 8] == 0.25
    assert train["learning_rate", 4] == pytest.approx(0.1)
    assert _read(tmp_path / "summaries" / "eval") == {("loss", 4): 0.75}


def test_other_workers_write_nothing(tmp_path) -> None:
    callback = summaries.make(Context(None, str(tmp_path), False, 0, 8))
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
    callback = summaries.make(Context(None, store, True, 0, 8))
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
