"""Images mirrored left to right in half of the cases, and shifted a little.

Each axis moves by up to an eighth of the image, as it comes; the edge is
reflected into the gap. As for CIFAR in He et al., "Deep Residual Learning for
Image Recognition", 2016, section 4.2, https://arxiv.org/abs/1512.03385, who
fill the gap with zeros.

Not for images in which left and right matter, such as letters and digits.

    python train.py --dataset=tfds:cifar10 --augmentation=flip_and_shift

`H` rows, `W` columns, `C` channels.
"""

import tensorflow as tf

from errors import RequestError

# Part of the height, or the width, by which an image moves at the most.
_LARGEST_SHIFT = 8


def augment(
    features: tf.Tensor, labels: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mirrors and shifts one image `[H, W, C]`.

    Args:
        features: The image.
        labels: Stay as they are.
        seed: int32 `[2]`.

    Raises:
        RequestError: if the features are no image.
    """
    if not isinstance(features, tf.Tensor) or features.shape.rank != 3:
        raise RequestError(
            "--augmentation=flip_and_shift: needs images [height, width, "
            "channels] as features; this dataset has none."
        )
    flip_seed, shift_seed = tf.unstack(tf.random.split(seed, 2))
    image = tf.image.stateless_random_flip_left_right(features, flip_seed)
    height, width, _ = features.shape
    rows, columns = height // _LARGEST_SHIFT, width // _LARGEST_SHIFT
    padded = tf.pad(
        image, [[rows, rows], [columns, columns], [0, 0]], "REFLECT"
    )
    moved = tf.image.stateless_random_crop(padded, features.shape, shift_seed)
    return moved, labels
