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
    pictures. What is computed at a time is no more than a replica's part of a
    batch, for which there is memory; it is nothing if it would not be drawn.
    Without a `context.sample`, and under a strategy for TPUs, whose cores may
    each hold a part of the model, there is nothing to draw.
    """
    strategy, read = context.strategy, context.sample
    if read is None or strategy is None or _is_tpu(strategy):
        return draw_nothing
    batch_size = context.config["data"]["global_batch_size"]
    share = batch_size // strategy.num_replicas_in_sync
    model = LocalModel(strategy, context.state, share)
    sample: list[Any] = []

    def look() -> tuple[Pictures, Graph | None]:
        is_first = not sample
        if is_first:
            features, labels = read(_EXAMPLES)
            spec = model.output_spec(features)
            sample.extend((features, labels, _needs(features, labels, spec)))
        features, labels, is_needed = sample
        outputs = model.predict(features) if is_needed else None
        pictures = draw(features, labels, outputs)
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
            `[N, T, …]` the last is taken. None: only images are drawn.
    """
    captions, wrong = [""] * _IMAGES, [False] * _IMAGES
    pictures: Pictures = {}
    is_drawn = _needs(features, labels, outputs)
    if is_drawn:
        is_class = labels.dtype.is_integer
        labels, outputs = np.asarray(labels), np.asarray(outputs, np.float32)
    if is_drawn and is_class:
        predicted = outputs.argmax(axis=1)
        wrong = (predicted != labels).tolist()
        captions = [
            f"{taken} not {true}" if taken != true else f"{true}"
            for taken, true in zip(predicted, labels, strict=True)
        ]
        pictures = _draw_classes(labels, predicted, outputs.shape[1])
    elif is_drawn:
        pictures = _draw_numbers(labels, outputs)
    if _are_images(features):
        images = np.nan_to_num(np.asarray(features[:_IMAGES], np.float32))
        size = len(images)
        pictures["predictions/images"] = _picture.examples(
            images, captions[:size], wrong[:size]
        )
    return pictures


def _needs(features: Any, labels: Any, outputs: Any) -> bool:
    """Returns whether outputs of that shape, which may be a spec, are drawn."""
    if not tf.is_tensor(labels) or not hasattr(outputs, "shape"):
        return False
    shape, values = outputs.shape, labels.shape[1:]
    if labels.dtype.is_integer:
        # Classes; a sequence of them is not drawn, and no number either.
        if values.rank != 0 or shape.rank != 2:
            return False
        return (shape[1] or 0) <= _MAX_CLASSES or _are_images(features)
    size = shape[1:].num_elements()
    iterates = shape[2:].is_compatible_with(values)
    return iterates or size in (None, values.num_elements())


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


def _are_images(features: Any) -> bool:
    if not tf.is_tensor(features):
        return False
    return features.shape.rank == 4 and features.shape[-1] in (1, 3, 4)


def _is_tpu(strategy: tf.distribute.Strategy) -> bool:
    devices = strategy.extended.worker_devices
    return any("TPU" in device.upper() for device in devices)
