"""The outer loop: Python between compiled loops of steps.

At a boundary the order is always the same, and written here only:

    1. evaluate, if it is due
    2. stop on a loss that is not finite; keep the best apart; early stopping
    3. write a checkpoint, if it is due
    4. callbacks; if one asks to stop, what is missing of 1 to 4 is made up

Inner loops end at multiples of `steps_per_loop` and wherever an evaluation or
a checkpoint is due. The last step is always evaluated and kept.
"""

import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from training import TrainConfig
from training import average
from training import checkpoint
from training import guard
from training import metrics_log
from training import optimizer as optimizer_lib
from training import workers
from training.inner_loop import Loop
from training.state import TrainState

Logs = dict[str, float]


def make_train(
    loop: Loop,
    iterator: Iterator[Any],
    state: TrainState,
    global_batch_size: int,
) -> Callable[[int], Logs]:
    """Returns a function that trains for `n` steps and reports on them.

    Args:
        loop: From `step.make_train_loop`.
        iterator: Over distributed global batches.
        state: What the loop trains.
        global_batch_size: Examples in each global batch.
    """

    def train(num_steps: int) -> Logs:
        logs = _timed(loop, iterator, num_steps, global_batch_size)
        logs["learning_rate"] = optimizer_lib.learning_rate(state.optimizer)
        return logs | (state.loss_scale.logs() if state.loss_scale else {})

    return train


def make_evaluate(
    loop: Loop,
    dataset: Any,
    state: TrainState,
    num_steps: int,
    global_batch_size: int,
) -> Callable[[], Logs]:
    """Returns a function that evaluates the whole of `dataset`.

    Args:
        loop: From `step.make_eval_loop`.
        dataset: Distributed dataset of `num_steps` global batches.
        state: Its averages of the weights, if any, are what is evaluated.
        num_steps: Global batches in it.
        global_batch_size: Examples in each, padding included.
    """

    def evaluate() -> Logs:
        weights = state.model.trainable_variables
        with average.swapped_in(state.averages, weights):
            logs = _timed(loop, iter(dataset), num_steps, global_batch_size)
        logs["learning_rate"] = optimizer_lib.learning_rate(state.optimizer)
        return logs | {"examples": int(logs["examples"])}

    return evaluate


def run(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    train: Callable[[int], Logs],
    evaluate: Callable[[], Logs],
    callbacks: Sequence[keras.callbacks.Callback],
    config: TrainConfig,
    model_dir: str,
) -> Logs:
    """Trains up to `config.train_steps`; returns the last evaluation.

    Args:
        strategy: The one in whose scope `state` was made.
        state: Model, optimizer and step; changed.
        train: From `make_train`, with an iterator that stands at `state.step`.
        evaluate: From `make_evaluate`.
        callbacks: Keras callbacks; any may set `model.stop_training`.
        config: How long, and what is due when.
        model_dir: Folder of the run; the chief writes it.

    Raises:
        RuntimeError: if a loss is not finite, naming the steps.
    """
    step, epoch = int(state.step.numpy()), 0
    if step >= config.train_steps or state.stopping.is_over():
        return evaluate()

    evaluate_at, save_at = _make_keepers(
        strategy, state, evaluate, config, model_dir
    )
    hooks = _start_hooks(callbacks, state.model)
    last = False
    while not last:
        first, step = step, step + steps_to_boundary(step, config)
        hooks.on_train_batch_begin(first)
        logs = train(step - first)
        _record(strategy, model_dir, step, "train", logs)
        last = step == config.train_steps
        evaluation: Logs = {}
        if last or _is_due(step, config.eval_every_steps):
            evaluation = evaluate_at(first, step, logs)
        else:
            guard.check(state, logs, {}, first, step)
        last = last or state.stopping.is_over()
        saved = last or _is_due(step, config.checkpoint_every_steps)
        if saved:
            save_at(step)
        hooks.on_train_batch_end(step, dict(logs))
        epoch += _end_epoch(hooks, epoch, logs, evaluation)
        # Any worker may ask; all must stop at the same step.
        if not last and workers.total(strategy, state.model.stop_training):
            last = True
            if not evaluation:
                evaluation = evaluate_at(first, step, logs)
                epoch += _end_epoch(hooks, epoch, logs, evaluation)
            if not saved:
                save_at(step)
    hooks.on_train_end(logs)
    return evaluation


def _start_hooks(
    callbacks: Sequence[keras.callbacks.Callback], model: keras.Model
) -> keras.callbacks.CallbackList:
    model.stop_training = False
    hooks = keras.callbacks.CallbackList(list(callbacks), model=model)
    hooks.on_train_begin()
    hooks.on_epoch_begin(0)
    return hooks


def _make_keepers(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    evaluate: Callable[[], Logs],
    config: TrainConfig,
    model_dir: str,
) -> tuple[Callable[[int, int, Logs], Logs], Callable[[int], None]]:
    """Returns what evaluates and judges at a step, and what saves at one."""

    def evaluate_at(first: int, step: int, logs: Logs) -> Logs:
        evaluation = evaluate()
        _record(strategy, model_dir, step, "eval", evaluation)
        guard.check(state, logs, evaluation, first, step)
        if state.stopping.update(evaluation):
            name = state.stopping.name(evaluation)
            best = {"step": step, "metric": name, "value": evaluation[name]}
            checkpoint.save_best(strategy, state.variables(), model_dir, best)
        return evaluation

    def save_at(step: int) -> None:
        keep = config.checkpoints_to_keep
        checkpoint.save(strategy, state.variables(), model_dir, step, keep)

    return evaluate_at, save_at


def steps_to_boundary(step: int, config: TrainConfig) -> int:
    """Returns how many steps the inner loop that starts at `step` has."""
    intervals = (
        config.steps_per_loop,
        config.eval_every_steps,
        config.checkpoint_every_steps,
    )
    to_next = [every - step % every for every in intervals if every]
    return min(config.train_steps - step, *to_next)


def _timed(
    loop: Loop, iterator: Iterator[Any], num_steps: int, batch_size: int
) -> Logs:
    """Runs `loop` and returns its metrics as floats, with its speed."""
    start = time.monotonic()
    # A tensor: a Python number would be traced anew for each value.
    results = loop(iterator, tf.constant(num_steps, tf.int64))
    logs = {name: float(value.numpy()) for name, value in results.items()}
    rate = num_steps / (time.monotonic() - start)
    return logs | {
        "steps_per_sec": rate,
        "examples_per_sec": rate * batch_size,
    }


def _record(
    strategy: tf.distribute.Strategy,
    model_dir: str,
    step: int,
    split: str,
    logs: Mapping[str, float],
) -> None:
    if workers.is_chief(strategy):
        metrics_log.append(model_dir, step, split, logs)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _end_epoch(
    hooks: keras.callbacks.CallbackList,
    epoch: int,
    logs: Logs,
    evaluation: Logs,
) -> bool:
    """Tells of an evaluation, which ends an epoch; returns whether it did."""
    if not evaluation:
        return False
    hooks.on_test_begin()
    hooks.on_test_end(dict(evaluation))
    prefixed = {f"val_{name}": value for name, value in evaluation.items()}
    hooks.on_epoch_end(epoch, logs | prefixed)
    hooks.on_epoch_begin(epoch + 1)
    return True
