"""What the model makes of a few examples, as pictures.

Class labels give a confusion matrix, numbers a scatter of predicted against
true values, and images are shown above what they were taken for. `N` examples,
`C` classes.
"""

from collections.abc import Callable
from typing import Any
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from training.callbacks import Context
from training.callbacks import _picture
from training.callbacks._local_model import LocalModel

Pictures = dict[str, np.ndarray]  # tag → RGB `[H, W, 3]`
Graph: TypeAlias = tf.compat.v1.GraphDef

_EXAMPLES = 512
_IMAGES = 16
_MAX_CLASSES = 100
_POINTS = 2000


def make(context: Context) -> Callable[[], tuple[Pictures, Graph | None]]:
    """Returns what draws the model's view of the first examples of `eval`.

    At the first call they are read, and the graph of the model comes with the
    pictures. Without a `context.sample`, and under a strategy for TPUs, whose
    cores may each hold a part of the model, there is nothing to draw.
    """
    strategy, read = context.strategy, context.sample
    if read is None or strategy is None or _is_tpu(strategy):
        return draw_nothing
    model = LocalModel(strategy, context.state)
    sample: list[Any] = []

    def look() -> tuple[Pictures, Graph | None]:
        is_first = not sample
        if is_first:
            sample.extend(read(_EXAMPLES))
        features, labels = sample
        pictures = draw(features, labels, model.predict(features))
        return pictures, model.graph(features) if is_first else None

    return look


def draw_nothing() -> tuple[Pictures, Graph | None]:
    """Takes the place of what draws, where it cannot."""
    return {}, None


def draw(features: Any, labels: Any, outputs: Any) -> Pictures:
    """Draws what can be drawn.

    Args:
        features: Images `[N, H, W, D]` of 1, 3 or 4 channels, or anything.
        labels: Classes `[N]`, or numbers `[N, …]`.
        outputs: Logits `[N, C]`, or numbers of the labels' shape; of iterates
            `[N, T, …]` the last is taken.
    """
    if not tf.is_tensor(labels) or not tf.is_tensor(outputs):
        return {}
    classes = labels.dtype.is_integer and labels.shape.rank == 1
    labels, outputs = np.asarray(labels), np.asarray(outputs, np.float32)
    captions, wrong = [""] * len(labels), [False] * len(labels)
    pictures: Pictures = {}
    if classes and outputs.ndim == 2:
        predicted = outputs.argmax(axis=1)
        wrong = (predicted != labels).tolist()
        captions = [
            f"{taken} not {true}" if taken != true else f"{true}"
            for taken, true in zip(predicted, labels, strict=True)
        ]
        pictures = _draw_classes(labels, predicted, outputs.shape[1])
    elif not classes:
        pictures = _draw_numbers(labels, outputs)
    if tf.is_tensor(features) and _are_images(features):
        images = np.nan_to_num(np.asarray(features[:_IMAGES], np.float32))
        pictures["predictions/images"] = _picture.examples(
            images, captions[:_IMAGES], wrong[:_IMAGES]
        )
    return pictures


def _draw_classes(
    labels: np.ndarray, predicted: np.ndarray, num_classes: int
) -> Pictures:
    if num_classes > _MAX_CLASSES:
        return {}
    counts = np.zeros([num_classes, num_classes], np.int64)
    np.add.at(counts, (labels, predicted), 1)
    picture = _picture.confusion_matrix(counts)
    return {"predictions/confusion_matrix": picture}


def _draw_numbers(labels: np.ndarray, outputs: np.ndarray) -> Pictures:
    if outputs.ndim > labels.ndim and outputs.shape[2:] == labels.shape[1:]:
        outputs = outputs[:, -1]
    if labels.size != outputs.size:
        return {}
    pairs = np.stack([labels.ravel(), outputs.ravel()])
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)][:, :_POINTS]
    if not pairs.size:
        return {}
    return {"predictions/predicted_against_true": _picture.scatter(*pairs)}


def _are_images(features: tf.Tensor) -> bool:
    return features.shape.rank == 4 and features.shape[-1] in (1, 3, 4)


def _is_tpu(strategy: tf.distribute.Strategy) -> bool:
    devices = strategy.extended.worker_devices
    return any("TPU" in device.upper() for device in devices)
