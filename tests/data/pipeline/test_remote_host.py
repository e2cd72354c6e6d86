import importlib
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data import digits
from data.pipeline import remote_host
from errors import RequestError
from flags import registry
from tests.data import test_tfds

CONFIG = DataConfig(dataset="mine")
FEATURES = tf.TensorSpec([2], tf.float32)
LABELS = tf.TensorSpec([], tf.int32)


def _module(**functions: Callable[..., Any]) -> types.ModuleType:
    module = types.ModuleType("mine")
    info = DatasetInfo(
        task="classification",
        num_examples={"train": 8, "eval": 4},
        features=FEATURES,
        labels=LABELS,
        num_classes=3,
    )
    vars(module).update(info=lambda config: info, **functions)
    return module


def _generator(
    config: DataConfig, split: str, shard: tuple[int, int]
) -> tf.data.Dataset:
    del config, split, shard
    return tf.data.Dataset.from_generator(
        lambda: iter([([1.0, 2.0], 1)]), output_signature=(FEATURES, LABELS)
    )


def _rows(
    config: DataConfig, split: str, shard: tuple[int, int]
) -> tf.data.Dataset:
    del config, split, shard
    return tf.data.Dataset.from_tensors((tf.zeros([2]), tf.constant(1)))


def _nested(
    config: DataConfig, split: str, shard: tuple[int, int]
) -> tf.data.Dataset:
    """Python in a function of a function."""
    files = tf.data.Dataset.range(2)
    return files.interleave(lambda _: _generator(config, split, shard))


def _by_python(
    config: DataConfig, split: str, element: tuple[tf.Tensor, tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    del config, split
    features = tf.py_function(lambda x: x, [element[0]], tf.float32)
    return features, element[1]


def _by_numpy(
    config: DataConfig, split: str, index: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    del config, split
    label = tf.numpy_function(lambda i: np.int32(i), [index], tf.int32)
    return tf.zeros([2]), label


def _arrays(config: DataConfig, split: str) -> tuple[Any, Any]:
    del config, split
    return np.zeros([8, 2], np.float32), np.zeros([8], np.int32)


def _only_eval(
    config: DataConfig, split: str, shard: tuple[int, int]
) -> tf.data.Dataset:
    return (_generator if split == "eval" else _rows)(config, split, shard)


@pytest.mark.parametrize(
    ("functions", "op"),
    [
        ({"source": _generator}, "reading train runs Python .PyFunc"),
        ({"source": _nested}, "reading train runs Python .PyFunc"),
        ({"source": _only_eval}, "reading eval runs Python .PyFunc"),
        ({"source": _rows, "preprocess": _by_python}, "EagerPyFunc"),
        ({"arrays": _arrays, "preprocess": _by_python}, "EagerPyFunc"),
        ({"example": _by_numpy}, "PyFunc"),
    ],
    ids=["generator", "nested", "eval", "preprocess", "arrays", "example"],
)
def test_refuses_python(functions: dict[str, Any], op: str) -> None:
    with pytest.raises(RequestError, match=f"--dataset=mine: .*{op}"):
        remote_host.check(_module(**functions), CONFIG)


def test_refuses_an_augmentation_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = types.ModuleType("augmentation_of.mine")

    def augment(x: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> Any:
        del seed
        return tf.ensure_shape(tf.py_function(abs, [x], tf.float32), [2]), y

    augment.__module__ = mine.__name__
    vars(mine)["augment"] = augment
    monkeypatch.setitem(sys.modules, mine.__name__, mine)
    config = DataConfig(dataset="mine", augmentation=mine.__name__)

    with pytest.raises(RequestError, match="reading train runs Python"):
        remote_host.check(_module(source=_rows), config)
    # So that it is imported once more, in the connection.
    assert mine.__name__ not in sys.modules


@pytest.mark.parametrize("count", [1, 2])
def test_refuses_local_files(tmp_path: pathlib.Path, count: int) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("1\n")

    def source(*_: Any) -> tf.data.Dataset:
        return tf.data.TextLineDataset([str(path)] * count)

    with pytest.raises(RequestError, match=r"train is read from /.*rows.txt"):
        remote_host.check(_module(source=source), CONFIG)


def test_refuses_what_lies_in_a_local_folder_of_tfds(
    tmp_path: pathlib.Path,
) -> None:
    config = test_tfds._prepare_folder(
        tmp_path,
        {"x": test_tfds.IMAGE, "y": test_tfds.DIGIT},
        {"train": 4, "test": 2},
    )
    module = registry.load("data", config.dataset, "dataset")
    with pytest.raises(RequestError, match=r"train is read from /.*tfrecord"):
        remote_host.check(module, config)


# Where the files of these are decides, see above.
FILES = {"images", "tfds", "tfrecord"}


@pytest.mark.parametrize("name", sorted({*registry.names("data")} - FILES))
def test_takes_our_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = registry.load("data", name, "dataset")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    remote_host.check(module, DataConfig(dataset=name))


def test_takes_words_tables_and_buckets() -> None:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["README.md", "gs://b/x"], [0, 1]),
        default_value=2,
    )

    def preprocess(*inputs: Any) -> tuple[tf.Tensor, tf.Tensor]:
        del inputs
        return tf.zeros([2]), table.lookup(tf.constant("README.md"))

    remote_host.check(_module(source=_rows, preprocess=preprocess), CONFIG)


def test_refuses_unknown_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.FEATURES", tf.TensorSpec([None]))
    with pytest.raises(RequestError, match="every dimension must be known"):
        remote_host.check(_module(source=_rows), CONFIG)


def test_module_is_imported_once_more_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "data.digits", digits)
    monkeypatch.setattr("data.digits", digits)
    remote_host.check(digits, DataConfig())
    assert importlib.import_module("data.digits") is not digits
