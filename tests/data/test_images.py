"""Folders of images; what `_folder` and `_image` do shows here too."""

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import train
from data import DataConfig
from data import images
from data.pipeline import blame
from data.pipeline import class_weights
from data.pipeline import prepare
from data.pipeline import remote_host
from data.pipeline import sample
from errors import RequestError
from flags.command_line import Configs
from model import ModelConfig
from strategies import StrategyConfig
from training import RunConfig
from training import TrainConfig

CONTEXT = tf.distribute.InputContext()
# 1×1: a white frame, then a black one.
GIF = (
    b"GIF89a\1\0\1\0\x80\0\0\xff\xff\xff\0\0\0"
    b",\0\0\0\0\1\0\1\0\0\2\2\x44\1\0,\0\0\0\0\1\0\1\0\0\2\2\x4c\1\0;"
)


def _png(value: int, channels: int = 3, side: int = 4) -> bytes:
    pixels = tf.fill([side, side, channels], tf.constant(value, tf.uint8))
    return tf.io.encode_png(pixels).numpy()


def _write(folder: Any, counts: dict[str, int]) -> str:
    """Writes `counts["train/cat"]` images there; the i-th has the grey i."""
    for name, count in counts.items():
        tf.io.gfile.makedirs(f"{folder}/{name}")
        for i in range(count):
            path = f"{folder}/{name}/{i:03}.png"
            tf.io.gfile.GFile(path, "wb").write(_png(i))
    return str(folder)


def _config(folder: Any, options: str = ",size=4x4", **kwargs: Any):
    return DataConfig(
        dataset=f"images:{folder}{options}", global_batch_size=4, **kwargs
    )


def _rows(config: DataConfig, split: str) -> list[tuple[int, int]]:
    """Reads (grey, class) of each example in turn."""
    rows = []
    for index in range(images.info(config).num_examples[split]):
        image, label = images.example(config, split, tf.constant(index))
        rows.append((round(255 * float(image[0, 0, 0])), int(label)))
    return rows


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_reads_the_classes_in_the_order_of_their_names(
    tmp_path: Path, place: str
) -> None:
    folder = tmp_path if place == "here" else "ram://pets"
    config = _config(
        _write(
            folder,
            {"train/dog": 2, "train/cat": 3, "test/dog": 1, "val/cat": 9},
        )
    )

    info = images.info(config)

    assert info.task == "classification"
    assert info.num_classes == 2
    assert info.features == tf.TensorSpec([4, 4, 3], tf.float32)
    assert info.labels == tf.TensorSpec([], tf.int32)
    assert _rows(config, "train") == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
    assert _rows(config, "eval") == [(0, 1)]
    np.testing.assert_array_equal(
        images.labels(config, "train"), [0] * 3 + [1] * 2
    )


def test_batches_are_what_info_says(tmp_path: Path) -> None:
    config = _config(_write(tmp_path, {"train/a": 5, "train/b": 6}))

    batches = list(
        prepare.train_dataset(images, config, CONTEXT, seed=0, step=0).take(5)
    )

    assert batches[0][0].shape == (4, 4, 4, 3)
    labels = np.concatenate([labels for _, labels, _ in batches])
    np.testing.assert_array_equal(np.bincount(labels), [10, 10])


def test_every_tenth_is_held_out_where_there_is_no_other_folder(
    tmp_path: Path,
) -> None:
    config = _config(_write(tmp_path, {"train/a": 12, "train/b": 9}))

    assert _rows(config, "eval") == [(9, 0), (7, 1)]
    whole = [(i, 0) for i in range(12)] + [(i, 1) for i in range(9)]
    assert sorted(_rows(config, "train") + _rows(config, "eval")) == sorted(
        whole
    )


def test_the_folder_may_be_data_dir(tmp_path: Path) -> None:
    _write(tmp_path, {"train/a": 5, "train/b": 6})
    config = DataConfig(dataset="images:size=2x3", data_dir=str(tmp_path))

    assert images.info(config).features.shape == [2, 3, 3]


def test_the_folder_starts_at_data_dir(tmp_path: Path) -> None:
    _write(tmp_path / "pets", {"train/a": 5, "train/b": 6})
    config = DataConfig(dataset="images:pets", data_dir=str(tmp_path))

    assert sum(images.info(config).num_examples.values()) == 11


def test_classes_have_the_same_numbers_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There names of folders end with a slash, which is more than a hyphen."""
    counts = {"train/cat": 1, "train/cat-big": 1, "eval/cat": 1}
    here = images.info(_config(_write(tmp_path / "here", counts)))
    folder = _write(tmp_path / "there", counts)
    listed = tf.io.gfile.listdir
    monkeypatch.setattr(
        tf.io.gfile,
        "listdir",
        lambda path: [
            f"{name}/" if Path(path, name).is_dir() else name
            for name in listed(path)
        ],
    )

    there = images.info(_config(folder))

    assert there.class_names == here.class_names == ("cat", "cat-big")


def test_the_folder_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _write(tmp_path, {"train/a": 5, "train/b": 6})
    images.info(_config(folder))
    monkeypatch.setattr(tf.io.gfile, "listdir", None)

    _, labels = sample.first(images, _config(folder, skip_bad_examples=1), 9)

    assert labels.shape == [1]


def test_hidden_names_are_passed_over(tmp_path: Path) -> None:
    _write(tmp_path, {"train/a": 5, "train/b": 6, "train/.cache": 1})
    (tmp_path / "train" / "a" / ".DS_Store").write_text("")
    (tmp_path / "train" / "about.txt").write_text("")

    info = images.info(_config(tmp_path))

    assert info.num_classes == 2
    assert sum(info.num_examples.values()) == 11


def _bmp() -> bytes:
    """Writes 1×1, blue 30, green 20, red 10, one line of four bytes."""
    file = struct.pack("<2sIHHI", b"BM", 58, 0, 0, 54)
    image = struct.pack("<IiiHHIIiiII", 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0)
    return file + image + bytes([30, 20, 10, 0])


@pytest.mark.parametrize(
    ("name", "content", "pixel"),
    [
        ("a.PNG", lambda: _png(7, channels=1), [7, 7, 7]),
        ("a.png", lambda: _png(7, channels=4), [7, 7, 7]),
        (
            "a.jpg",
            lambda: tf.io.encode_jpeg(np.full([8, 8, 3], 90, "u1")).numpy(),
            [90, 90, 90],
        ),
        ("a.bmp", _bmp, [10, 20, 30]),
        ("a.gif", lambda: GIF, [255, 255, 255]),
    ],
    ids=["grey", "alpha", "jpeg", "bmp", "gif"],
)
def test_reads_all_formats(
    tmp_path: Path, name: str, content: Any, pixel: list[int]
) -> None:
    config = _config(_write(tmp_path, {"train/b": 1, "eval/b": 1}))
    (tmp_path / "train" / "a").mkdir()
    (tmp_path / "train" / "a" / name).write_bytes(content())

    image, _ = images.example(config, "train", tf.constant(0))

    np.testing.assert_allclose(
        image, np.broadcast_to(np.array(pixel) / 255, [4, 4, 3]), atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "content", "grey"),
    [
        ("a.bmp", _bmp, 0.299 * 10 + 0.587 * 20 + 0.114 * 30),
        ("a.gif", lambda: GIF, 255),
        ("a.png", lambda: _png(7, channels=1), 7),
    ],
    ids=["bmp", "gif", "grey"],
)
def test_makes_all_formats_grey(
    tmp_path: Path, name: str, content: Any, grey: float
) -> None:
    _write(tmp_path, {"train/b": 1, "eval/b": 1})
    config = _config(tmp_path, ",size=4x4,channels=1")
    (tmp_path / "train" / "a").mkdir()
    (tmp_path / "train" / "a" / name).write_bytes(content())

    image, _ = images.example(config, "train", tf.constant(0))

    np.testing.assert_allclose(image, np.full([4, 4, 1], grey / 255), rtol=1e-3)


def test_resizes_by_averaging_and_makes_grey(tmp_path: Path) -> None:
    """Columns of 0 and 255, too fine for the smaller image."""
    _write(tmp_path, {"train/b": 1, "eval/b": 1})
    config = _config(tmp_path, ",size=4x2,channels=1")
    (tmp_path / "train" / "a").mkdir()
    stripes = np.zeros([32, 32, 3], np.uint8)
    stripes[:, ::2] = 255
    content = tf.io.encode_png(stripes).numpy()
    (tmp_path / "train" / "a" / "stripes.png").write_bytes(content)

    image, _ = images.example(config, "train", tf.constant(0))

    assert image.shape == (4, 2, 1)
    np.testing.assert_allclose(image, np.full([4, 2, 1], 0.5), atol=0.02)


def test_a_damaged_image_is_named_or_skipped(tmp_path: Path) -> None:
    folder = _write(tmp_path, {"train/a": 2, "train/b": 2, "eval/a": 1})
    path = tmp_path / "train" / "b" / "000.png"
    path.write_bytes(path.read_bytes()[:30])
    config = _config(folder)
    skips = _config(folder, skip_bad_examples=9)

    found = blame.find(images, config, CONTEXT, "train", steps=range(1))
    (batch,) = prepare.train_dataset(
        images, skips, CONTEXT, seed=0, step=0
    ).take(1)

    assert found.startswith(f"example 2 of split train ({path}): ")
    assert not found.endswith(".")
    _, labels, weights = (part.numpy() for part in batch)
    assert sorted(zip(labels, weights, strict=True)) == [
        (0, 0),
        (0, 1),
        (0, 1),
        (1, 1),
    ]


def test_balances_its_classes(tmp_path: Path) -> None:
    config = _config(
        _write(tmp_path, {"train/a": 1, "train/b": 3, "eval/a": 1}),
        class_weights="balanced",
    )

    table = class_weights.table(images, config)

    np.testing.assert_allclose(table, [4 / 2, 4 / 6], rtol=1e-6)


def test_a_remote_host_cannot_read_a_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "data.images", images)
    config = _config(_write(tmp_path, {"train/a": 1, "train/b": 1, "val/a": 1}))

    with pytest.raises(RequestError, match=r"train is read from /.*000.png"):
        remote_host.check(images, config)


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        ({"training/a": 1}, "", "there is no folder .*/train; put"),
        ({"train/a": 20}, "", "1 sub-folders; it needs one for each"),
        ({"train/a": 4, "train/b": 5}, "", "too few images to evaluate on"),
        (
            {"train/a": 9, "train/b": 9, "test": 0},
            "",
            "test has no images to evaluate on; put some into .*/test, in",
        ),
        (
            {"train/a": 1, "train/b": 1, "eval/c": 1},
            "",
            "not to be learned: c; the folder train has a, b",
        ),
        ({"train/a/x": 1, "train/b": 9}, "", "a/x is not called as an image"),
        ({"train/a": 1}, ",size=4", "size=4: must be height and width"),
        ({"train/a": 1}, ",size=0x4", "size=0x4: must be height and width"),
        ({"train/a": 1}, ",channels=2", "channels=2: must be 1 or 3"),
        ({"train/a": 1}, ",crop=1", "unknown key 'crop'; allowed: channels"),
    ],
    ids=[
        "no_train",
        "one_class",
        "few",
        "empty_test",
        "stranger",
        "no_image",
        "side",
        "empty",
        "channels",
        "option",
    ],
)
def test_refuses_what_is_laid_out_otherwise(
    tmp_path: Path, counts: dict[str, int], options: str, message: str
) -> None:
    config = _config(_write(tmp_path, counts), options)

    with pytest.raises(RequestError, match=f"--dataset.*{message}"):
        images.info(config)


def test_refuses_to_guess_the_folder() -> None:
    with pytest.raises(RequestError, match="write --dataset=images:FOLDER or"):
        images.info(DataConfig(dataset="images"))


def test_trains_on_two_replicas(tmp_path: Path) -> None:
    folder = _write(
        tmp_path / "pets", {"train/a": 3, "train/b": 6, "eval/a": 1}
    )
    config = _config(
        folder,
        ",size=8x8",
        class_weights="balanced",
        augmentation="flip_and_shift",
    )
    configs = Configs(
        RunConfig(model_dir=str(tmp_path / "run")),
        StrategyConfig(strategy="mirrored", devices=("cpu:0", "cpu:1")),
        config,
        ModelConfig(model="cnn", model_options=("filters=2",)),
        TrainConfig(train_steps=2, callbacks=()),
    )

    metrics = train.run(configs)

    assert metrics["examples"] == 1
    assert np.isfinite(metrics["loss"])
