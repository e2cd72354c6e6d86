"""A file system that refuses to rename and to append, as an object store may.

TensorFlow takes no file system that is written in Python. This is the one it
has in the memory of the process, `ram://`, with our own calls refused; what
TensorFlow's C++ does below them it decides for each file system itself.
"""

import importlib
from typing import Any
from typing import NoReturn

import pytest
import tensorflow as tf


def make(monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Returns a folder of the name in it, which is not there yet."""
    # As Keras imports it: at its first use a second module of this name takes
    # the place of the one that TensorFlow has.
    gfile = importlib.import_module("tensorflow.io.gfile")
    open_file = gfile.GFile

    def guarded(path: Any, mode: str = "r") -> tf.io.gfile.GFile:
        if str(path).startswith("ram://"):
            if "a" in mode:
                refuse()
            # `ram://` goes on after what is there; all others begin anew.
            if "w" in mode and gfile.exists(path):
                gfile.remove(path)
        return open_file(path, mode)

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise tf.errors.UnimplementedError(None, None, "refused")

    monkeypatch.setattr(gfile, "GFile", guarded)
    monkeypatch.setattr(gfile, "rename", refuse)
    # `ram://` takes what names begin with for a folder, which is tried first.
    monkeypatch.setattr(
        tf.train, "load_checkpoint", tf.compat.v1.train.NewCheckpointReader
    )
    return f"ram://{name}"


def read(path: str) -> str:
    """Returns the text of a file."""
    with tf.io.gfile.GFile(path) as file:
        return file.read()
