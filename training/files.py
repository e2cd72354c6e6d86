"""Files that no reader ever sees half of, and what to say of a full disk.

On a disk that takes a temporary name and a rename. An object store (`gs://`)
shows an object when it is closed, whole or not at all, and may refuse to
rename, append or lock: there a file is written straight to its name.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator

import tensorflow as tf

from errors import RunError


def is_object_store(path: str) -> bool:
    """Returns whether a path has a scheme."""
    return "://" in path


def temporary(path: str) -> str:
    """Returns where to write what `publish` gives the name `path`."""
    return path if is_object_store(path) else f"{path}.tmp"


def write(path: str, text: str) -> None:
    """Writes `text` so that `path` has all of it, or what it had before."""
    with tf.io.gfile.GFile(temporary(path), "w") as file:
        file.write(text)
    publish(temporary(path), path)


def publish(written: str, path: str) -> None:
    """Gives a finished file its name, in place of what had it before.

    It is on the disk by then: a machine that fails right after would otherwise
    leave the name with nothing in it.

    Args:
        written: From `temporary`; `path` itself has its name already.
        path: The name.
    """
    if written == path:
        return
    if not is_object_store(written):
        with open(written, "rb") as file:
            os.fsync(file.fileno())
    tf.io.gfile.rename(written, path, overwrite=True)


@contextlib.contextmanager
def explained(what: str, errors: str = "stop") -> Iterator[None]:
    """Turns trouble with files into one sentence.

    Args:
        what: What cannot be done if there is trouble.
        errors: `stop`, or `continue` to print it and go on.

    Raises:
        RunError: in place of what the file system raises.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        sentence = f"{what}: {reason(error)}."
        if errors == "stop":
            raise RunError(
                f"{sentence[:-1]}; the same flags go on from the newest "
                "checkpoint once it can be written."
            ) from error
        print(sentence, flush=True)


def reason(error: OSError | tf.errors.OpError) -> str:
    """Returns the system's words without TensorFlow's around them."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return error.message.partition(" [Op:")[0].rpartition("; ")[2]


def create_run_dir(name: str) -> str:
    """Makes a new folder `runs/<name>-<time>` and returns its path."""
    name = re.sub(r"[^\w.-]+", "_", name)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        suffix = f"-{number}" if number else ""
        path = os.path.join("runs", f"{name}-{stamp}{suffix}")
        try:
            os.makedirs(path)
        except FileExistsError:
            continue
        return path
    raise RuntimeError("runs/ has 1000 folders of this second.")
