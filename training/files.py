"""Files that no reader ever sees half of, and what to say of a full disk."""

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf

from errors import RunError


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
