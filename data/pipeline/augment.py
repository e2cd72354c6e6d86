"""`--augmentation`: training examples changed at random, the same each time.

After batching, because a row's place in the order of a training, which its
random numbers come from, follows from the batch it is in. So neither skipped
examples nor other replicas move any number.

    place = step·G + row, row = j·R + r for row j of replica r

`G` global batch size, `R` replicas, `B` = G / R rows of a replica.
"""

import importlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import order
from errors import RequestError
from errors import missing_is_wrong

# (features, labels, seed int32 [2]) → (features, labels)
Augment = Callable[[Any, Any, tf.Tensor], tuple[Any, Any]]


def load(config: DataConfig, info: DatasetInfo) -> Augment | None:
    """Imports what `--augmentation` means and tries it on shapes alone.

    Returns:
        The function; None if there is to be no augmentation.

    Raises:
        RequestError: if there is no such module, it has no `augment`, or that
            refuses the dataset, or changes structure, shape or dtype of an
            example.
    """
    if not config.augmentation:
        return None
    augment = getattr(_import(config), "augment", None)
    if augment is None:
        raise RequestError(
            f"--augmentation={config.augmentation}: the module has no function "
            "augment(features, labels, seed); define it."
        )
    example = (info.features, info.labels)
    seed = tf.TensorSpec([2], tf.int32)
    try:
        traced = tf.function(augment).get_concrete_function(*example, seed)
    except Exception as error:
        # AutoGraph raises an error of its own for one that it does not know.
        if isinstance(error.__context__, RequestError):
            raise error.__context__ from None
        raise
    received = traced.structured_outputs
    if not _fits(example, received):
        raise RequestError(
            f"--augmentation={config.augmentation}: augment was given {example}"
            f" and returned {received}; it must keep structure, shapes and "
            "dtypes."
        )
    return augment


def apply(
    augment: Augment,
    batches: tf.data.Dataset,
    context: tf.distribute.InputContext,
    *,
    seed: int,
    step: int,
) -> tf.data.Dataset:
    """Augments the training batches of one worker.

    Args:
        augment: From `load`.
        batches: (features `[B, …]`, labels `[B, …]`, weights `[B]`), for each
            step one for every replica of this worker.
        context: Which worker this is, and how many replicas there are.
        seed: Of the run.
        step: That of the first batch.

    Returns:
        Dataset like `batches`. Rows of weight 0 stay as they are: they are no
        examples.
    """
    size = batches.element_spec[2].shape[0]
    replicas = context.num_replicas_in_sync
    own = order.local_replicas(context)

    def change(number: tf.Tensor, row: Any) -> Any:
        batch, j = number // size, number % size
        replica = own.start + batch % len(own)
        steps = step + batch // len(own)
        place = (steps * size + j) * replicas + replica
        # Both numbers drawn, so that a user's `seed + 1` is not the next row's.
        own_seed = tf.random.stateless_uniform(
            [2], [seed, place], minval=None, maxval=None, dtype=tf.int32
        )
        features, labels, weight = row

        def keep_shape(now: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
            now = tf.ensure_shape(now, before.shape)
            return tf.where(weight > 0, now, before)

        new = augment(features, labels, own_seed)
        old = (features, labels)
        return (*tf.nest.map_structure(keep_shape, new, old), weight)

    # In pairs, so that an element's parts stay together.
    rows = batches.unbatch().enumerate()
    changed = rows.map(change, num_parallel_calls=tf.data.AUTOTUNE)
    return changed.batch(size, drop_remainder=True)


def _import(config: DataConfig) -> Any:
    name = config.augmentation
    path = name if "." in name else f"data.augmentation.{name}"
    with missing_is_wrong(path, f"--augmentation={name}"):
        return importlib.import_module(path)


def _fits(example: tuple[Any, Any], received: Any) -> bool:
    try:
        tf.nest.assert_same_structure(example, received)
    except (TypeError, ValueError):
        return False
    pairs = zip(
        tf.nest.flatten(example), tf.nest.flatten(received), strict=True
    )
    return all(
        spec.dtype == tensor.dtype
        and spec.shape.is_compatible_with(tensor.shape)
        for spec, tensor in pairs
    )
