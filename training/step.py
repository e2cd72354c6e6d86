"""The step: what every replica does with its share of a global batch.

Shapes: `B` examples of one replica, `G = R·B` of the global batch on `R`
replicas. A batch is `(features, labels, weights)`; a padded row has weight 0.

    each replica    gradients of its micro-batches, added up      forward.py
    all replicas    one sum of gradients and statistics           gradients.py
    each replica    unscale, check, clip, apply: equal everywhere
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from errors import RequestError
from training import TrainConfig
from training import average
from training import forward
from training import gradients as gradients_lib
from training import inner_loop
from training import notes
from training import randomness
from training import statistics as statistics_lib
from training.forward import Batch
from training.gradients import Gradients
from training.inner_loop import Loop
from training.state import TrainState
from training.task import Task

# batch, whether to stop → gradients of the global batch, whether all are
# finite, and how many replicas were asked to stop
Compute = Callable[[Batch, tf.Tensor], tuple[Gradients, tf.Tensor, tf.Tensor]]
# global batch → how many replicas were asked to stop; None if none can be
Step = Callable[[Batch], tf.Tensor | None]


def make_train_loop(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    task: Task,
    global_batch_size: int,
    config: TrainConfig,
    seed: int = 0,
    stop: tf.Variable | None = None,
    count_skipped: bool = False,
) -> Loop:
    """Returns a compiled function that trains for a number of steps.

    Call it in cross-replica context, with the number of steps as a tensor: a
    Python number would be traced anew for each value. It returns the metrics
    of those steps as scalars, those of the model's own layers too.

    Args and errors are those of `make_train_step`.
    """
    what = (strategy, state, task, global_batch_size, config)
    return inner_loop.make(*make_train_step(*what, seed, stop, count_skipped))


def make_train_step(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    task: Task,
    global_batch_size: int,
    config: TrainConfig,
    seed: int = 0,
    stop: tf.Variable | None = None,
    count_skipped: bool = False,
) -> tuple[Step, list[keras.Metric]]:
    """Returns a step for cross-replica context, and its metrics, loss first.

    Args:
        strategy: The one in whose scope `state` was made.
        state: Model, optimizer and step; changed by the loop.
        task: Loss and metrics.
        global_batch_size: `G`.
        config: Accumulation, clipping, averaging and compilation.
        seed: What random layers draw from, together with step and replica.
        stop: Set to 1 on any worker, in the midst of a loop, it ends the loop
            on all of them after the same step. On the CPU, outside the scope.
        count_skipped: Whether to report how many rows had weight 0, which in
            training only examples have that could not be read.

    Raises:
        RequestError: if the micro-batches do not divide a replica's batch, or
            XLA is asked to compile a layer that talks to other replicas.
    """
    _check_divides(strategy, global_batch_size, config)
    with strategy.scope():
        # As precise as the weights, for which a float64 run asks.
        dtype = keras.config.dtype_policy().variable_dtype
        loss = keras.metrics.Mean(name="loss", dtype=dtype)
        # Of steps that are multiples of steps_per_loop, before clipping.
        norm = keras.metrics.Mean(name="gradient_norm")
        metrics = [loss, norm, *task.make_metrics()]
    forward_backward = forward.make_forward_backward(
        strategy, state, task, global_batch_size, config
    )
    compute = _make_compute(
        strategy, state, forward_backward, metrics, config, seed
    )

    if count_skipped:
        with strategy.scope():
            skipped = keras.metrics.Sum("skipped_examples", dtype="float64")
        metrics = [*metrics, skipped]
        compute = _counting(compute, skipped)
    step = _make_step(strategy, state, compute, config, stop)
    return step, [*metrics, *state.model.metrics]


def _counting(compute: Compute, skipped: keras.metrics.Sum) -> Compute:
    """Returns `compute`, adding up the rows of weight 0 as well."""

    def count_and_compute(
        batch: Batch, asked: tf.Tensor
    ) -> tuple[Gradients, tf.Tensor, tf.Tensor]:
        skipped.update_state(tf.cast(batch[2] <= 0, tf.float64))
        return compute(batch, asked)

    return count_and_compute


def _make_step(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    compute: Compute,
    config: TrainConfig,
    stop: tf.Variable | None,
) -> Step:
    """Returns the whole step, for cross-replica context."""

    def apply(gradients: Gradients) -> tf.Tensor:
        weights = state.model.trainable_variables
        state.optimizer.apply(gradients, weights)
        if config.ema_momentum is not None:
            average.update(state.averages, weights, config.ema_momentum)
        return tf.constant(True)

    def compute_and_apply(batch: Batch, asked: tf.Tensor) -> tf.Tensor:
        gradients, _, votes = compute(batch, asked)
        apply(gradients)
        return votes

    def step(batch: Batch) -> tf.Tensor | None:
        # Read here: the program of a TPU has no variables of the host.
        asked = tf.constant(0) if stop is None else tf.identity(stop)
        if state.loss_scale is None:
            votes = strategy.run(compute_and_apply, (batch, asked))
        else:
            # Between two runs, because no replica may synchronize inside a
            # condition of its own.
            gradients, finite, votes = strategy.run(compute, (batch, asked))
            finite = _first(strategy, finite)
            tf.cond(
                finite,
                lambda: _first(strategy, strategy.run(apply, (gradients,))),
                lambda: tf.constant(False),
            )
            state.loss_scale.update(finite)
        state.step.assign_add(1)
        return None if stop is None else _first(strategy, votes)

    return step


def _make_compute(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    forward_backward: forward.ForwardBackward,
    metrics: list[keras.Metric],
    config: TrainConfig,
    seed: int,
) -> Compute:
    """Returns the part of a step up to the gradients to apply."""
    replicas = strategy.num_replicas_in_sync
    loss_metric, norm_metric, *task_metrics = metrics
    seeds = randomness.seeds_of(state.model)
    # One replica has nothing to average, but a skipped step to undo.
    needed = replicas > 1 or state.loss_scale is not None
    statistics = statistics_lib.statistics_of(state.model) if needed else []

    def accumulate(batch: Batch) -> tuple[Gradients, tf.Tensor]:
        gradients: Gradients = []
        losses = []
        batch = (*batch[:2], forward.counting(batch[2]))
        for part in gradients_lib.split(
            batch, config.gradient_accumulation_steps
        ):
            part = gradients_lib.after(gradients, part)
            loss, outputs, more = forward_backward(part)
            gradients = gradients_lib.add(gradients, more)
            losses.append(loss)
            for metric in task_metrics:
                metric.update_state(part[1], outputs, sample_weight=part[2])
        return gradients, tf.add_n(losses)

    def compute(
        batch: Batch, asked: tf.Tensor
    ) -> tuple[Gradients, tf.Tensor, tf.Tensor]:
        randomness.reseed(seeds, seed, state.step)
        before = [tf.identity(variable.value) for variable in statistics]
        gradients, loss = accumulate(batch)
        after = [tf.identity(variable.value) for variable in statistics]
        # The loss goes along, as whether it is a number is asked of the whole;
        # and the wish to stop, on which all must act at the same step: a
        # reduction of its own would take a third of a small model's time.
        votes = tf.cast(asked, loss.dtype)
        gradients, (*after, loss, votes) = gradients_lib.exchange(
            gradients, [*after, loss, votes], config.gradient_compression
        )
        finite = tf.constant(True)
        if state.loss_scale:
            gradients = state.loss_scale.unscale(gradients)
            finite = gradients_lib.are_finite(gradients)
        for variable, old, new in zip(statistics, before, after, strict=True):
            variable.assign(tf.where(finite, new / replicas, old))
        is_due = tf.equal(state.step % config.steps_per_loop, 0)
        is_due = tf.logical_and(is_due, finite)
        notes.gradient_norm(norm_metric, gradients, is_due)
        notes.loss(loss_metric, loss, finite, state.loss_scale is not None)
        if config.global_clipnorm is not None:
            gradients = gradients_lib.clip(gradients, config.global_clipnorm)
        return gradients, finite, votes

    return compute


def _first(strategy: tf.distribute.Strategy, values: Any) -> tf.Tensor:
    return strategy.experimental_local_results(values)[0]


def _check_divides(
    strategy: tf.distribute.Strategy,
    global_batch_size: int,
    config: TrainConfig,
) -> None:
    count = config.gradient_accumulation_steps
    size = global_batch_size // strategy.num_replicas_in_sync
    if size % count:
        raise RequestError(
            f"--gradient_accumulation_steps={count}: does not divide the "
            f"{size} examples of each replica; choose a divisor, or another "
            "--global_batch_size."
        )
