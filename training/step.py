"""The step: what every replica does with its share of a global batch.

Shapes: `B` examples of one replica, `G = R·B` of the global batch on `R`
replicas. A batch is `(features, labels, weights)`; a padded row has weight 0.

The loss of a step is the sum of the weighted per-example losses divided by
`G`, plus the model's own losses. Each replica computes its part, and gradients
are *summed* over replicas, so that `R` replicas take the step of one.

Python loops in a compiled function are written with `tf.while_loop`, as
AutoGraph is off: Keras's own `fit` runs layers without it too.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from training.state import TrainState
from training.task import Task

Batch = tuple[Any, tf.Tensor, tf.Tensor]
# (iterator, number of steps as an int64 tensor) → results by name
Loop = Callable[[Any, tf.Tensor], dict[str, tf.Tensor]]


def make_train_loop(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    task: Task,
    global_batch_size: int,
    jit_compile: bool | None = None,
) -> Loop:
    """Returns a compiled function that trains for a number of steps.

    Call it in cross-replica context, with the number of steps as a tensor: a
    Python number would be traced anew for each value. It returns the metrics
    of those steps as scalars.

    Args:
        strategy: The one in whose scope `state` was made.
        state: Model, optimizer and step; changed by the loop.
        task: Loss and metrics.
        global_batch_size: `G`.
        jit_compile: Whether XLA compiles forward and backward pass; None: on
            GPUs. A TPU compiles the whole step by itself.
    """
    model = state.model
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        loss_metric = keras.metrics.Mean(name="loss")
        metrics = task.make_metrics()

    def forward_backward(
        batch: Batch,
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        features, labels, weights = batch
        with tf.GradientTape() as tape:
            outputs = model(features, training=True)
            losses = _per_example_loss(task, labels, outputs)
            data_loss = tf.reduce_sum(_weighted(losses, weights))
            # This replica's part of the loss: the sum over replicas is the
            # loss of the global batch. The model's own losses appear on each.
            loss = (
                data_loss / global_batch_size
                + _sum_losses(model, losses.dtype) / replicas
            )
        return loss, outputs, tape.gradient(loss, model.trainable_variables)

    if _compiles(strategy, jit_compile):
        # Only this part: the optimizer touches variables of other devices.
        forward_backward = tf.function(
            forward_backward, jit_compile=True, autograph=False
        )

    def replica_step(batch: Batch) -> None:
        loss, outputs, gradients = forward_backward(batch)
        # Sums the gradients over replicas, then applies them.
        state.optimizer.apply(gradients, model.trainable_variables)
        _, labels, weights = batch
        for metric in metrics:
            metric.update_state(labels, outputs, sample_weight=weights)
        # A mean over replicas of R times its part is the sum of the parts.
        loss_metric.update_state(loss * replicas)

    def step(batch: Batch) -> None:
        strategy.run(replica_step, args=(batch,))
        state.step.assign_add(1)

    return _make_loop(step, [loss_metric, *metrics])


def make_eval_loop(
    strategy: tf.distribute.Strategy, model: keras.Model, task: Task
) -> Loop:
    """Returns a compiled function that evaluates a number of batches.

    Every example counts by its weight, whatever batch it is in; the result
    holds `loss`, the task's metrics and `examples`, how many were counted.

    Args:
        strategy: The one in whose scope `model` was made.
        model: The model to evaluate.
        task: Loss and metrics.
    """
    with strategy.scope():
        loss_metric = keras.metrics.Mean(name="loss")
        # float32 cannot count past 2^24.
        examples = keras.metrics.Sum(name="examples", dtype="float64")
        metrics = task.make_metrics()

    def replica_step(batch: Batch) -> None:
        features, labels, weights = batch
        outputs = model(features, training=False)
        losses = _per_example_loss(task, labels, outputs)
        losses += _sum_losses(model, losses.dtype)
        # A padded row may have any loss, even NaN: zero times it is NaN.
        losses = tf.where(weights > 0, losses, tf.zeros_like(losses))
        loss_metric.update_state(losses, sample_weight=weights)
        examples.update_state(tf.cast(weights > 0, tf.float64))
        for metric in metrics:
            metric.update_state(labels, outputs, sample_weight=weights)

    def step(batch: Batch) -> None:
        strategy.run(replica_step, args=(batch,))

    return _make_loop(step, [loss_metric, examples, *metrics])


def _make_loop(
    step: Callable[[Batch], None], metrics: list[keras.Metric]
) -> Loop:
    """Returns a compiled loop around `step` that reports `metrics`."""

    @tf.function(autograph=False)
    def loop(iterator: Any, num_steps: tf.Tensor) -> dict[str, tf.Tensor]:
        def body(done: tf.Tensor) -> tuple[tf.Tensor]:
            step(iterator.get_next())
            return (done + 1,)

        for metric in metrics:
            metric.reset_state()
        tf.while_loop(
            lambda done: done < num_steps,
            body,
            (tf.zeros_like(num_steps),),
            parallel_iterations=1,
        )
        return {metric.name: metric.result() for metric in metrics}

    return loop


def _per_example_loss(
    task: Task, labels: tf.Tensor, outputs: tf.Tensor
) -> tf.Tensor:
    """Returns `[B]`; refuses a loss that has averaged already."""
    losses = tf.convert_to_tensor(task.per_example_loss(labels, outputs))
    if losses.shape.rank != 1:
        raise ValueError(
            f"per_example_loss returned shape {losses.shape}; it must return "
            "one loss per example, [B]: a mean here would weigh padded rows "
            "and count once per replica. Average over other axes only."
        )
    return losses


def _weighted(losses: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns `losses · weights`, 0 where the weight is 0 even for NaN."""
    return tf.math.multiply_no_nan(losses, tf.cast(weights, losses.dtype))


def _sum_losses(model: keras.Model, dtype: tf.DType) -> tf.Tensor:
    """Returns the sum of the regularization losses that layers added."""
    zero = tf.zeros([], dtype)
    return tf.add_n([zero, *(tf.cast(loss, dtype) for loss in model.losses)])


def _compiles(
    strategy: tf.distribute.Strategy, jit_compile: bool | None
) -> bool:
    """Returns whether forward and backward pass get a compiler of their own."""
    device = strategy.extended.worker_devices[0]
    if "TPU" in device:
        return False
    return "GPU" in device if jit_compile is None else jit_compile
