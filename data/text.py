"""Bytes of a text, to learn which one comes next.

    python train.py --model=transformer --dataset=text
    python train.py --model=transformer --dataset=text:book.txt,length=256

The file may hold any bytes; a path that is not absolute starts at
`--data_dir`. Without a file it is text that every machine has: the docstrings
of the modules (not the packages) of Python's standard library, in the order
of the files and of the lines, cleaned of their indentation and parted by empty
lines. Python 3.11 has 0.9 MB of them; other versions have other text, so
figures are comparable within one version only. Sources are parsed, never
imported.

An example is a window of `T` = `length` bytes. Features: int32 `[T]`. Labels:
int32 `[T]`, the byte after each of them. Windows follow each other without
overlap, and what is left at the end is dropped. The last tenth of the text is
held out: no byte of it is in a window of training.

All of it is in memory, one byte a byte, three times: as read, as features and
as labels. They are `arrays`, so that a run resumes in constant time, and become
int32 only in the batches. On a remote TPU they travel inside the graph.
"""

import ast
import dataclasses
import functools
import pathlib
import sysconfig
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import options as options_lib
from data import DataConfig
from data import DatasetInfo
from errors import RequestError

_NUM_BYTES = 256
_DOCUMENTED = (
    ast.Module,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What follows `text:`; a first word without `=` is the path."""

    path: str = ""
    """A file, local or in a bucket, whose name holds no comma. Empty: the
    docstrings of the standard library."""
    length: int = 128
    """Bytes `T` of a window. Positive."""

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"length={self.length}: must be 1 or more.")


def info(config: DataConfig) -> DatasetInfo:
    """Reads the text and describes its windows.

    Raises:
        RequestError: for an unknown key or a bad value, a file that cannot be
            read, or a text too short for one window in each split.
    """
    length = _options(config).length
    num_windows = {
        split: max(0, len(_part(config, split)) - 1) // length
        for split in ("train", "eval")
    }
    if not all(num_windows.values()):
        raise RequestError(
            f"--dataset={config.dataset}: the text has {len(_text(config))} "
            f"bytes; the tenth that is held out must have {length + 1} or "
            "more: give a longer text or a smaller length."
        )
    window = tf.TensorSpec([length], tf.int32)
    return DatasetInfo(
        task="classification",
        num_examples=num_windows,
        features=window,
        labels=window,
        num_classes=_NUM_BYTES,
    )


def arrays(config: DataConfig, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Cuts one split into windows: uint8 `[N, T]`, and the bytes after."""
    length = _options(config).length
    part = _part(config, split)
    num_windows = (len(part) - 1) // length
    end = num_windows * length
    shape = (num_windows, length)
    return part[:end].reshape(shape), part[1 : end + 1].reshape(shape)


def preprocess(
    config: DataConfig, split: str, element: tuple[tf.Tensor, tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Casts one window and the bytes after to int32."""
    del config, split
    features, labels = element
    return tf.cast(features, tf.int32), tf.cast(labels, tf.int32)


def read_docstrings(folder: str) -> bytes:
    """Gathers the docstrings of the modules directly in `folder`, as UTF-8.

    A file that this Python cannot parse is left out.
    """
    paths = sorted(pathlib.Path(folder).glob("*.py"))
    return "\n\n".join(text for p in paths for text in _docstrings(p)).encode()


def _docstrings(path: pathlib.Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    nodes = [node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)]
    # A module has no line; its docstring comes first.
    for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
        text = ast.get_docstring(node)
        if text:
            yield text


def _options(config: DataConfig) -> Options:
    words = config.argument.split(",") if config.argument else []
    if words and "=" not in words[0]:
        words[0] = f"path={words[0]}"
    return options_lib.parse(words, Options, "dataset")


def _part(config: DataConfig, split: str) -> np.ndarray:
    """Returns the bytes of one split, uint8, without copying them."""
    text = np.frombuffer(_text(config), np.uint8)
    cut = len(text) - len(text) // 10
    return text[:cut] if split == "train" else text[cut:]


def _text(config: DataConfig) -> bytes:
    path = _options(config).path
    if not path:
        return _standard_library()
    return _read(tf.io.gfile.join(config.data_dir, path), config.dataset)


# Parsing takes seconds; info and arrays ask for it several times.
@functools.cache
def _standard_library() -> bytes:
    return read_docstrings(sysconfig.get_path("stdlib"))


@functools.cache
def _read(path: str, dataset: str) -> bytes:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except tf.errors.OpError as error:
        raise RequestError(
            f"--dataset={dataset}: {path} cannot be read: {error.message}; "
            "give the path of a text file."
        ) from error
