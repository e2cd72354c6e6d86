import json
import sys

import numpy as np
import tensorflow as tf

from benchmarks import input as input_lib


def test_prints_a_table_and_writes_flat_json(
    tmp_path, monkeypatch, capsys
) -> None:
    path = tmp_path / "input.json"
    words = ["input", f"--json={path}", "--seconds=0.01", "--pairs=2"]
    monkeypatch.setattr(sys, "argv", [*words, "--examples=1000"])
    tiny = input_lib.CNN._replace(options=("filters=2",), steps=2)
    monkeypatch.setattr(input_lib, "CNN", tiny)
    monkeypatch.setattr(input_lib, "DATASETS", ("digits", "tfds"))
    input_lib.main()
    assert "shuffle" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert figures["input.tfds.vs_cnn"] > 0
    assert figures["input.digits.examples_per_sec"] > 0
    for name in ("order.share", "shuffle.share", "padding.share"):
        assert 0 < figures[f"input.{name}"] < figures["input.order_share"]
    assert all(isinstance(value, float) for value in figures.values())


def test_all_datasets_are_measured() -> None:
    assert set(input_lib.DATASETS) == set(input_lib.registry.names("data"))


def test_reads_every_batch_once() -> None:
    read = []

    def note(index: np.ndarray) -> np.ndarray:
        read.append(int(index))
        return np.ones([input_lib.BATCH], np.float32)

    dataset = tf.data.Dataset.counter().map(
        lambda index: (index, tf.numpy_function(note, [index], tf.float32))
    )
    rate = input_lib.reading(dataset, seconds=0.01)()
    assert rate > 0
    # A few more may wait already.
    assert len(read) >= 100
    assert read == list(range(len(read)))
