"""Encoded images → tensors of one size."""

import tensorflow as tf

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
# Of red, green and blue, as a jpeg stores it (ITU-R BT.601). TensorFlow's own
# add up to 0.9999.
_GREY = (0.299, 0.587, 0.114)


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
        channels: `C`, 3, or 1 for grey.

    Returns:
        float32 `[H, W, C]`, in [0, 1].
    """
    # In colour, as neither a gif nor a bmp of 24 bits can be read as grey.
    image = tf.io.decode_image(content, 3, tf.float32, expand_animations=False)
    image = tf.ensure_shape(image, [None, None, 3])
    if channels == 1:
        image = tf.reduce_sum(image * _GREY, -1, keepdims=True)
    return tf.image.resize(image, size, antialias=True)
