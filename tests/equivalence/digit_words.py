"""Dataset: 320 digits as images or as words, on request with overflows.

digit_words             images, `[8, 8, 1]`
digit_words:words       where each line of the image is brightest, `[8]`
digit_words:overflow    images, of which two are too bright for float16
"""

import numpy as np
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data import digits
from data.pipeline import order
from tests.equivalence import cells

# Ten steps of 32, so that each example is trained on once.
NUM_EXAMPLES = {"train": 320, "eval": 50}
WORDS = 10
# Step, counted from 0 → the ink of one image. float16 ends at 65,504: the
# first is infinite in the forward pass, the second, whose loss is finite, in
# the backward pass only.
OVERFLOWS = {3: 1e30, 6: 2000.0}


def info(config: DataConfig) -> DatasetInfo:
    words = config.argument == "words"
    return DatasetInfo(
        task="classification",
        num_examples=NUM_EXAMPLES,
        features=tf.TensorSpec([8], tf.int32)
        if words
        else tf.TensorSpec([8, 8, 1], tf.float32),
        labels=tf.TensorSpec([], tf.int32),
        num_classes=10,
    )


def arrays(config: DataConfig, split: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = digits.arrays(DataConfig(), split)
    count = NUM_EXAMPLES[split]
    images, labels = images[:count].copy(), labels[:count]
    if config.argument == "words":
        # Of the ten words two never occur: their gradient is exactly zero.
        return np.argmax(images[..., 0], axis=2).astype(np.int32), labels
    if config.argument == "overflow" and split == "train":
        for step, ink in OVERFLOWS.items():
            images[_last_row(step, config.global_batch_size)] = ink
    return images, labels


def _last_row(step: int, batch_size: int) -> int:
    """Returns which example stands last in a step's global batch.

    Rows are dealt to the replicas in turn: the last goes to the last replica,
    however many there are, and to its last micro-batch.
    """
    indices = order.train_indices(
        NUM_EXAMPLES["train"], batch_size, cells.SEED, step
    )
    return int(next(iter(indices))[-1])
