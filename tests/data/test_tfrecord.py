"""Files of `tf.train.Example`; what `_example` does shows here too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import tfrecord
from data.pipeline import blame
from data.pipeline import prepare
from data.pipeline import sample
from errors import RequestError

CONTEXT = tf.distribute.InputContext()


def _example(values: dict[str, Any]) -> bytes:
    """Packs integers, floats and bytes as `tf.train.Feature`s."""
    features = {}
    for key, value in values.items():
        value = value if isinstance(value, list) else [value]
        if value and isinstance(value[0], bytes):
            feature = {"bytes_list": tf.train.BytesList(value=value)}
        elif value and isinstance(value[0], float):
            feature = {"float_list": tf.train.FloatList(value=value)}
        else:
            feature = {"int64_list": tf.train.Int64List(value=value)}
        features[key] = tf.train.Feature(**feature)
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString()


def _write(path: Any, records: list[bytes]) -> str:
    """Writes a file, and returns the folder above its own."""
    folder = str(path).rpartition("/")[0]
    tf.io.gfile.makedirs(folder)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return folder.rpartition("/")[0]


def _numbers(numbers: range) -> list[bytes]:
    """Example i has the features [i, i] and the class i."""
    return [
        _example({"features": [float(i), float(i)], "labels": i})
        for i in numbers
    ]


def _config(folder: Any, options: str = ",classes=100", **kwargs: Any):
    return DataConfig(
        dataset=f"tfrecord:{folder}{options}", global_batch_size=4, **kwargs
    )


def _examples(config: DataConfig, split: str, shard=(0, 1)) -> list[Any]:
    source = tfrecord.source(config, split, shard)
    return [tfrecord.preprocess(config, split, record) for record in source]


def _labels(config: DataConfig, split: str, shard=(0, 1)) -> list[int]:
    return [int(labels) for _, labels in _examples(config, split, shard)]


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_reads_the_files_in_the_order_of_their_names(
    tmp_path: Path, place: str
) -> None:
    folder = tmp_path if place == "here" else "ram://numbers"
    _write(f"{folder}/train/b.tfrecord-00000-of-00001", _numbers(range(5, 7)))
    _write(f"{folder}/train/a.tfrecords", _numbers(range(5)))
    _write(f"{folder}/eval/a.tfrecord", _numbers(range(7, 10)))
    config = _config(folder)

    info = tfrecord.info(config)

    assert info.task == "classification"
    assert info.num_classes == 100
    assert info.num_examples == {"train": 7, "eval": 3}
    assert info.features == tf.TensorSpec([2], tf.float32)
    assert info.labels == tf.TensorSpec([], tf.int32)
    assert _labels(config, "train") == list(range(7))
    assert _labels(config, "eval") == [7, 8, 9]
    assert _examples(config, "eval")[0][0].numpy().tolist() == [7, 7]


@pytest.mark.parametrize("name", ["x[1]", "*"])
def test_no_letter_of_the_folder_is_a_pattern(
    tmp_path: Path, name: str
) -> None:
    _write(tmp_path / name / "train" / "a.tfrecord", _numbers(range(10)))
    (tmp_path / name / "train" / "about.txt").write_text("")
    config = DataConfig(
        dataset=f"tfrecord:{name},classes=100", data_dir=str(tmp_path)
    )

    assert tfrecord.info(config).num_examples == {"train": 9, "eval": 1}


def test_records_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "train" / "a.tfrecord", _numbers(range(10)))
    tfrecord.info(_config(tmp_path))
    monkeypatch.setattr(tfrecord, "_count", None)

    _, labels = sample.first(tfrecord, _config(tmp_path, shard_by="files"), 9)

    assert labels.numpy().tolist() == [9]


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8b\x08" + bytes(40), b"class,value\n", b"abc"],
    ids=["compressed", "text", "short"],
)
def test_a_later_file_that_is_of_another_kind_is_named(
    tmp_path: Path, split: str, content: bytes
) -> None:
    for each in ("train", "eval"):
        _write(tmp_path / each / "a.tfrecord", _numbers(range(10)))
    path = tmp_path / split / "b.tfrecord"
    path.write_bytes(content)

    with pytest.raises(RequestError, match=f"first record of {path} cannot"):
        tfrecord.info(_config(tmp_path))


def test_every_tenth_of_a_file_is_held_out_where_there_is_no_other_folder(
    tmp_path: Path,
) -> None:
    _write(tmp_path / "train" / "a.tfrecord", _numbers(range(12)))
    _write(tmp_path / "train" / "b.tfrecord", _numbers(range(12, 35)))
    config = _config(tmp_path)

    assert tfrecord.info(config).num_examples == {"train": 32, "eval": 3}
    assert _labels(config, "eval") == [9, 21, 31]
    assert _labels(config, "eval", (1, 2)) == [21, 31]
    both = _labels(config, "train") + _labels(config, "eval")
    assert sorted(both) == list(range(35))


def test_files_are_shared_out(tmp_path: Path) -> None:
    for i in range(3):
        numbers = _numbers(range(4 * i, 4 * i + 4))
        _write(tmp_path / "train" / f"{i}.tfrecord", numbers)
        _write(tmp_path / "eval" / f"{i}.tfrecord", numbers)
    config = _config(tmp_path)

    assert _labels(config, "train", (0, 2)) == [*range(4), *range(8, 12)]
    assert _labels(config, "train", (1, 2)) == list(range(4, 8))
    with pytest.raises(RequestError, match=r"has 3 files for 4 workers"):
        tfrecord.source(config, "train", (0, 4))


def test_reads_encoded_images(tmp_path: Path) -> None:
    image = tf.io.encode_png(np.full([6, 6, 3], 51, np.uint8)).numpy()
    record = _example({"image/encoded": image, "image/class/label": 2})
    _write(tmp_path / "train" / "a.tfrecord", [record] * 10)
    config = _config(tmp_path, ",classes=3,size=4x5,channels=1")

    batch = next(
        iter(prepare.train_dataset(tfrecord, config, CONTEXT, seed=0, step=0))
    )

    np.testing.assert_allclose(batch[0], np.full([4, 4, 5, 1], 0.2), rtol=1e-5)
    np.testing.assert_array_equal(batch[1], [2] * 4)


def test_reads_numbers_of_a_shape_by_keys_of_ones_own(tmp_path: Path) -> None:
    record = _example({"x": list(range(6)), "y": [0.5, 1.5], "w": 3.0})
    _write(tmp_path / "train" / "a.tfrecord", [record] * 10)
    config = _config(tmp_path, ",features=x,labels=y,weights=w,shape=3x2")

    info = tfrecord.info(config)
    features, labels, weights = next(
        iter(prepare.train_dataset(tfrecord, config, CONTEXT, seed=0, step=0))
    )

    assert info.task == "regression"
    assert info.num_outputs == 2
    assert info.features == tf.TensorSpec([3, 2], tf.int64)
    np.testing.assert_array_equal(features[0], [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(labels, [[0.5, 1.5]] * 4)
    np.testing.assert_array_equal(weights, [3] * 4)


def test_starting_at_a_step_equals_skipping_to_it(tmp_path: Path) -> None:
    _write(tmp_path / "train" / "a.tfrecord", _numbers(range(30)))
    config = _config(tmp_path)

    def labels(step: int, num_steps: int) -> list[list[int]]:
        batches = prepare.train_dataset(
            tfrecord, config, CONTEXT, seed=3, step=step
        ).take(num_steps)
        return [labels.numpy().tolist() for _, labels, _ in batches]

    assert labels(8, 3) == labels(0, 11)[8:]


@pytest.mark.parametrize("ending", ["held_out", "folder"])
def test_a_damaged_record_is_named_or_skipped(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / "train" / "a.tfrecord"
    for name in ("a", "b"):
        start = 10 * (name == "b")
        records = _numbers(range(start, start + 10))
        _write(tmp_path / "train" / f"{name}.tfrecord", records)
    if ending == "folder":
        _write(tmp_path / "eval" / "a.tfrecord", _numbers(range(2)))
    size = path.stat().st_size // 10
    content = bytearray(path.read_bytes())
    content[8 * size + 14] ^= 1
    path.write_bytes(content)
    # Not even the folder's name is the same, as it is kept in mind.
    config, skips = (
        _config(tmp_path, skip_bad_examples=number) for number in (0, 99)
    )

    found = blame.find(tfrecord, config, CONTEXT, "train", steps=range(5))
    batches = prepare.train_dataset(
        tfrecord, skips, CONTEXT, seed=0, step=0
    ).take(5 - (ending == "held_out"))

    assert "element 8 of the source of split train: " in found
    weights = np.concatenate([weights for *_, weights in batches])
    # The rest of the file is lost, and what is not read weighs nothing.
    kept = np.concatenate([labels for _, labels, _ in batches])[weights > 0]
    right = {*range(8), *range(10, 20)}
    assert set(kept) <= right
    assert (weights == 0).any()


def test_a_file_that_is_cut_off_has_one_more_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train" / "a.tfrecord"
    _write(tmp_path / "eval" / "a.tfrecord", _numbers(range(3)))
    _write(path, _numbers(range(6)))
    path.write_bytes(path.read_bytes()[:-5])
    config = _config(tmp_path)

    assert tfrecord.info(config).num_examples["train"] == 6
    found = blame.find(tfrecord, config, CONTEXT, "train", steps=range(2))
    assert "element 5 of the source of split train: " in found


def test_a_damaged_file_elsewhere_is_refused() -> None:
    path = "ram://damaged/eval/a.tfrecord"
    _write(path, _numbers(range(6)))
    _write("ram://damaged/train/a.tfrecord", _numbers(range(6)))
    content = tf.io.gfile.GFile(path, "rb").read()
    tf.io.gfile.GFile(path, "wb").write(content[:-5])

    with pytest.raises(RequestError, match=r"a.tfrecord is damaged"):
        tfrecord.info(_config("ram://damaged"))


@pytest.mark.parametrize("label", [-1, 5])
def test_a_class_that_there_is_not_is_a_bad_example(
    tmp_path: Path, label: int
) -> None:
    records = _numbers(range(5))
    records[3] = _example({"features": [0.0, 0.0], "labels": label})
    _write(tmp_path / "train" / "a.tfrecord", records)
    _write(tmp_path / "eval" / "a.tfrecord", records)
    config = _config(tmp_path, ",classes=5")

    found = blame.find(tfrecord, config, CONTEXT, "eval")

    assert "element 3 of the source of split eval: " in found
    assert f"a label must be below classes, but is] [{label}]" in found


PIXELS = {"image/encoded": b"no image", "labels": 1}
TWO = {"features": [1.0, 2.0], "labels": 1}


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        (b"\xff\xff", ",classes=2", "no tf.train.Example"),
        (_example({"a": 1, "b": 2}), "", "no image/encoded or features, but a"),
        (_example({"features": 1.0}), "", "which are the labels by labels=KEY"),
        (_example(TWO), ",features=x", "has no x, but features, labels"),
        (_example(TWO), ",classes=2,weights=w", "has no w, but"),
        (
            _example({**TWO, "w": 1}),
            ",classes=2,weights=w",
            "w of the first record is a int64_list; a weight must be one float",
        ),
        (_example(PIXELS), ",classes=2", "is no jpeg, png, bmp or gif"),
        (_example(TWO), ",classes=2,shape=3x1", "holds 2 numbers, not 3x1"),
        (_example(TWO), ",classes=2,shape=-1x-2", "2 numbers, not -1x-2"),
        (_example(TWO), "", "labels of the first record is a int64_list of 1"),
        (
            _example({"features": 1.0, "labels": [1, 2]}),
            ",classes=3",
            "int64_list of 2; it must be",
        ),
        (
            _example({"features": 1.0, "labels": 1.0}),
            ",classes=3",
            "float_list of 1; it must be one int64",
        ),
        (_example(TWO), ",classes=1", "classes=1: must be 2 or more"),
        (_example(TWO), ",classes=2,size=3", "size=3: must be height"),
    ],
    # Bytes of a record have no order that stays.
    ids=[
        "no_example",
        "no_features",
        "no_labels",
        "other_features",
        "no_weights",
        "integer_weight",
        "no_image",
        "other_shape",
        "negative_shape",
        "no_classes",
        "two_labels",
        "float_label",
        "one_class",
        "one_size",
    ],
)
def test_refuses_what_it_cannot_read(
    tmp_path: Path, record: bytes, options: str, message: str
) -> None:
    _write(tmp_path / "train" / "a.tfrecord", [record] * 10)

    with pytest.raises(RequestError, match=f"--dataset.*{message}"):
        tfrecord.info(_config(tmp_path, options))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"there is no .*/train/\*.tfrecord"),
        (b"", "hold no record"),
        (
            b"\x1f\x8b" + bytes(40),
            "a.tfrecord cannot be read; is it a TFRecord",
        ),
    ],
    ids=["none", "empty", "compressed"],
)
def test_refuses_files_without_records(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    (tmp_path / "train").mkdir()
    if content is not None:
        (tmp_path / "train" / "a.tfrecord").write_bytes(content)

    with pytest.raises(RequestError, match=message):
        tfrecord.info(_config(tmp_path))


def test_refuses_too_few_to_hold_some_out(tmp_path: Path) -> None:
    _write(tmp_path / "train" / "a.tfrecord", _numbers(range(9)))
    _write(tmp_path / "train" / "b.tfrecord", _numbers(range(9)))

    with pytest.raises(RequestError, match="no records to evaluate on"):
        tfrecord.info(_config(tmp_path))
