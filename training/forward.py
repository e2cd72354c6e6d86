"""Forward and backward pass of one micro-batch on one replica.

The loss of a step is the sum of the weighted per-example losses divided by the
global batch `G`, plus the model's own losses. A replica computes its part of
it: with `R` replicas and `A` micro-batches the `R·A` parts add up to the loss
of the global batch, and their gradients to its gradient.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import placement
from errors import RequestError
from training import TrainConfig
from training import statistics
from training.gradients import Gradients
from training.state import TrainState
from training.task import Task

# What `data/pipeline/weights.py` gives an example of weight 0.
_SMALLEST = float(np.finfo(np.float32).tiny)

# (features, labels, weights); a padded row has weight 0
Batch = tuple[Any, tf.Tensor, tf.Tensor]
# batch → this part of the loss, outputs, gradients (times the loss scale)
ForwardBackward = Callable[[Batch], tuple[tf.Tensor, Any, Gradients]]


def make_forward_backward(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    task: Task,
    global_batch_size: int,
    config: TrainConfig,
) -> ForwardBackward:
    """Returns a function for replica context.

    Args:
        strategy: The one in whose scope `state` was made.
        state: Its model is called.
        task: Its loss is differentiated.
        global_batch_size: `G`.
        config: Accumulation and compilation.

    Raises:
        RequestError: if XLA is asked to compile a layer that talks to other
            replicas.
    """
    model = state.model
    parts = strategy.num_replicas_in_sync * config.gradient_accumulation_steps

    def forward_backward(batch: Batch) -> tuple[tf.Tensor, Any, Gradients]:
        features, labels, weights = place(batch)
        with tf.GradientTape() as tape:
            outputs = call(model, features, training=True)
            losses = per_example_loss(task, labels, outputs)
            weighted = tf.math.multiply_no_nan(
                losses, tf.cast(weights, losses.dtype)
            )
            # The model's own losses appear in every part.
            loss = (
                tf.reduce_sum(weighted) / global_batch_size
                + own_losses(model, losses.dtype) / parts
            )
            target = loss
            if state.loss_scale:
                target = state.loss_scale.scaled(loss)
        return loss, outputs, tape.gradient(target, model.trainable_variables)

    if not _compiles(strategy, model, config.jit_compile):
        return forward_backward
    # Only this part: the optimizer touches variables of other devices.
    return tf.function(forward_backward, jit_compile=True, autograph=False)


def counting(weights: tf.Tensor) -> tf.Tensor:
    """Returns weights `[B]`, exactly 0 for an example of weight 0.

    Such an example comes with the smallest float32, which tells it from a row
    that is none. Subtracted from any weight above 1e-30 it changes no bit.
    """
    return tf.nn.relu(placement.replicate(weights) - _SMALLEST)


def place(batch: Batch) -> Batch:
    """Splits the features over the devices of a replica, if it has several."""
    features, labels, weights = batch
    return (
        tf.nest.map_structure(placement.place_features, features),
        tf.nest.map_structure(placement.replicate, labels),
        placement.replicate(weights),
    )


def call(model: keras.Model, features: Any, training: bool) -> Any:
    """Returns the model's outputs, whole on every device of a replica."""
    outputs = widen(model(features, training=training))
    return tf.nest.map_structure(placement.replicate, outputs)


def per_example_loss(task: Task, labels: Any, outputs: Any) -> tf.Tensor:
    """Returns float32 or wider `[B]`.

    Raises:
        RequestError: if the loss has averaged already.
    """
    losses = widen(tf.convert_to_tensor(task.per_example_loss(labels, outputs)))
    if losses.shape.rank != 1:
        raise RequestError(
            f"--model: per_example_loss returned shape {losses.shape}; it must "
            "return one loss per example, [B], since a mean would count padded "
            "rows and count once per replica: average over other axes only."
        )
    return losses


def own_losses(model: keras.Model, dtype: tf.DType) -> tf.Tensor:
    """Returns the sum of the losses that layers added, such as penalties."""
    added = [tf.cast(loss, dtype) for loss in model.losses]
    return tf.add_n([tf.zeros([], dtype), *added])


def widen(tensors: Any) -> Any:
    """Casts half precision to float32: losses and metrics are sums."""
    return tf.nest.map_structure(
        lambda tensor: (
            tf.cast(tensor, tf.float32)
            if tensor.dtype in (tf.float16, tf.bfloat16)
            else tensor
        ),
        tensors,
    )


def _compiles(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    jit_compile: bool | None,
) -> bool:
    """Returns whether XLA compiles it, apart from the rest of the step."""
    device = strategy.extended.worker_devices[0]
    if "TPU" in device:
        return False  # a TPU compiles the whole step by itself
    alone = strategy.num_replicas_in_sync == 1
    if alone or not statistics.communicates(model):
        return "GPU" in device if jit_compile is None else jit_compile
    if jit_compile:
        raise RequestError(
            "--jit_compile: XLA cannot compile a layer with synchronized=True "
            "on several replicas; leave one of the two out."
        )
    return False
