"""`--class_weights`: what a training example counts by its class.

In the pipeline, so that the rows of every replica bring their weights along.
"""

import types

import numpy as np
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import contract
from data.pipeline import weights as weights_lib
from errors import RequestError


def check(
    module: types.ModuleType, config: DataConfig, info: DatasetInfo
) -> None:
    """Checks that the weights fit the dataset, without reading it.

    Raises:
        RequestError: if its examples have no class, if there is no such
            class, or if balanced weights would ask for labels that are not
            known before they are read.
    """
    if not config.class_weights:
        return
    flag = f"--class_weights={config.class_weights}"
    if not info.num_classes or info.labels.shape.rank != 0:
        raise RequestError(
            f"{flag}: --dataset={config.dataset} does not give each example "
            "one class; leave the flag out."
        )
    largest = max(config.read_class_weights(), default=0)
    if largest >= info.num_classes:
        raise RequestError(
            f"{flag}: there is no class {largest}; --dataset={config.dataset} "
            f"has 0 to {info.num_classes - 1}."
        )
    if config.class_weights == "balanced" and not _knows_labels(module):
        raise RequestError(
            f"{flag}: the labels of --dataset={config.dataset} are not known "
            "before they are read; give the numbers, such as 0:1,3:2.5."
        )


def apply(
    module: types.ModuleType, config: DataConfig, batches: tf.data.Dataset
) -> tf.data.Dataset:
    """Multiplies the weights of training batches by those of their classes.

    Args:
        module: The dataset.
        config: Its configuration; without class weights nothing is done.
        batches: (features, labels `[B]`, weights `[B]`).

    Raises:
        RequestError: as `check`.
    """
    if not config.class_weights:
        return batches
    by_class = tf.constant(table(module, config))

    def weigh(
        features: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        factors = tf.gather(by_class, labels)
        return features, labels, weights_lib.times(weights, factors)

    return batches.map(weigh)


def table(module: types.ModuleType, config: DataConfig) -> np.ndarray:
    """Returns the weight of each of `C` classes, float32 `[C]`.

    Raises:
        RequestError: as `check`, or for labels, known before they are read,
            that are no class.
    """
    info = contract.load_info(module, config)
    check(module, config, info)
    weights = np.ones(info.num_classes, np.float32)
    labels = np.zeros([0], np.int32)
    if _knows_labels(module):
        labels = _labels(module, config, info.num_classes)
    if config.class_weights == "balanced":
        counts = np.bincount(labels, minlength=len(weights))
        occurs = np.flatnonzero(counts)
        weights[occurs] = counts.sum() / (len(occurs) * counts[occurs])
    for number, weight in config.read_class_weights().items():
        weights[number] = weight
    return weights


def _knows_labels(module: types.ModuleType) -> bool:
    plain = hasattr(module, "arrays") and not hasattr(module, "preprocess")
    return plain or hasattr(module, "labels")


def _labels(
    module: types.ModuleType, config: DataConfig, num_classes: int
) -> np.ndarray:
    """Returns the labels of all training examples, if each is a class."""
    if hasattr(module, "labels"):
        labels = module.labels(config, "train")
    else:
        labels = np.asarray(module.arrays(config, "train")[1])
    strangers = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if strangers.size:
        first = strangers[0]
        raise RequestError(
            f"--class_weights={config.class_weights}: the label of example "
            f"{first} of split train of --dataset={config.dataset} is "
            f"{labels[first]}; its classes are 0 to {num_classes - 1}."
        )
    return labels
