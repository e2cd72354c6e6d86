"""Files that no reader ever sees half of."""

import tensorflow as tf


def write(path: str, text: str) -> None:
    """Writes `text` to a temporary name beside `path`, then renames it."""
    with tf.io.gfile.GFile(f"{path}.tmp", "w") as file:
        file.write(text)
    tf.io.gfile.rename(f"{path}.tmp", path, overwrite=True)
