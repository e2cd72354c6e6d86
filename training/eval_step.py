"""The step of an evaluation: every example counts by its weight."""

import keras
import tensorflow as tf

from training import forward
from training import inner_loop
from training.forward import Batch
from training.inner_loop import Loop
from training.task import Task


def make_eval_loop(
    strategy: tf.distribute.Strategy, model: keras.Model, task: Task
) -> Loop:
    """Returns a compiled function that evaluates a number of batches.

    Every example counts by its weight, whatever batch it is in; the result
    holds `loss`, the task's metrics and `examples`, how many were counted,
    and the metrics of the model's own layers, to which padded rows count too.

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
        features, labels, weights = forward.place(batch)
        outputs = forward.call(model, features, training=False)
        losses = forward.per_example_loss(task, labels, outputs)
        losses += forward.own_losses(model, losses.dtype)
        examples.update_state(tf.cast(weights > 0, tf.float64))
        weights = forward.counting(weights)
        # A padded row may have any loss, even NaN: zero times it is NaN.
        losses = tf.where(weights > 0, losses, tf.zeros_like(losses))
        loss_metric.update_state(losses, sample_weight=weights)
        for metric in metrics:
            metric.update_state(labels, outputs, sample_weight=weights)

    def step(batch: Batch) -> None:
        strategy.run(replica_step, args=(batch,))

    own = model.metrics
    return inner_loop.make(step, [loss_metric, examples, *metrics, *own])
