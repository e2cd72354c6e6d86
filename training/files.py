"""Files that no reader ever sees half of."""

import os

import tensorflow as tf


def write(path: str, text: str) -> None:
    """Writes `text` to a temporary name beside `path`, then renames it."""
    with tf.io.gfile.GFile(f"{path}.tmp", "w") as file:
        file.write(text)
    publish(f"{path}.tmp", path)


def publish(temporary: str, path: str) -> None:
    """Gives a finished file its name, in place of what had it before.

    It is on the disk by then: a machine that fails right after would otherwise
    leave the name with nothing in it.
    """
    if "://" not in temporary:
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
    tf.io.gfile.rename(temporary, path, overwrite=True)
