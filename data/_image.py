"""Encoded images → tensors of one size."""

import tensorflow as tf

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")


def check(size: tuple[int, ...], channels: int) -> None:
    """Checks what images are to become.

    Raises:
        ValueError: naming the option that is not allowed.
    """
    if len(size) != 2 or min(size) < 1:
        shown = "x".join(map(str, size))
        raise ValueError(
            f"size={shown}: must be height and width, such as 224x224."
        )
    if channels not in (1, 3):
        raise ValueError(f"channels={channels}: must be 1 or 3.")


def decode(
    content: tf.Tensor, size: tuple[int, ...], channels: int
) -> tf.Tensor:
    """Decodes a jpeg, png, bmp or the first frame of a gif; resizes it.

    Resizing does not keep the ratio of the sides. It is bilinear, and averages
    where it shrinks.

    Args:
        content: The file, string `[]`.
        size: Height `H` and width `W`.
        channels: `C`, 3 or 1; a gif has 3.

    Returns:
        float32 `[H, W, C]`, in [0, 1].
    """
    image = tf.io.decode_image(
        content, channels, tf.float32, expand_animations=False
    )
    image = tf.ensure_shape(image, [None, None, channels])
    return tf.image.resize(image, size, antialias=True)
