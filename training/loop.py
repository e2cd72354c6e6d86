"""The outer loop: Python between compiled loops of steps.

At a boundary the order is always the same, and written here only:

    1. evaluate, if it is due
    2. stop on a loss that is not finite; keep the best apart; early stopping
    3. begin a checkpoint, if it is due or the run is to be interrupted
    4. callbacks; if one asks to stop, what is missing of 1 to 4 is made up

Inner loops end at multiples of `steps_per_loop` and wherever an evaluation or
a checkpoint is due. The last step is always evaluated and kept.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NoReturn

import keras
import tensorflow as tf

from errors import Interrupted
from training import TrainConfig
from training import checkpoint_writer
from training import files
from training import guard
from training import metrics_log
from training import preemption
from training import profile
from training import workers
from training.inner_loop import Logs
from training.job import Job
from training.usage import Usage


def run(
    job: Job,
    train: Callable[[int], Logs],
    evaluate: Callable[[], Logs],
    callbacks: Sequence[keras.callbacks.Callback],
) -> Logs:
    """Trains up to `config.train_steps`; returns the last evaluation.

    Args:
        job: What is trained, and for how long.
        train: From `inner_loop.make_train`, with an iterator that stands at
            `state.step`.
        evaluate: From `inner_loop.make_evaluate`.
        callbacks: Keras callbacks; any may set `model.stop_training`.

    Raises:
        RunError: if a loss is not finite, naming the steps.
        Interrupted: if a worker was asked to stop, once all have saved.
    """
    state, config = job.state, job.config
    if state.steps_done() >= config.train_steps or state.stopping.is_over():
        return evaluate()
    is_chief = workers.is_chief(job.strategy)
    # Where TensorBoard finds the scalars of the same run; others would
    # overwrite the chief's file.
    name = "train" if is_chief else workers.task_name(job.strategy)
    with (
        preemption.calling(
            lambda: job.stop.assign(1), config.preemption_grace_secs
        ),
        profile.around(
            train,
            profile.parse(config.profile),
            state.steps_done,
            tf.io.gfile.join(job.model_dir, "summaries", name),
            is_chief,
        ) as profiled,
    ):
        return _run(job, profiled, evaluate, callbacks)


def _run(
    job: Job,
    train: Callable[[int], Logs],
    evaluate: Callable[[], Logs],
    callbacks: Sequence[keras.callbacks.Callback],
) -> Logs:
    state, config = job.state, job.config
    step, epoch = state.steps_done(), 0
    usage = Usage(job.strategy, job.count_flops)
    train = usage.timed("train", train)
    writer = checkpoint_writer.Writer(
        job.strategy,
        job.model_dir,
        config.checkpoints_to_keep,
        config.checkpoint_errors,
    )
    save = usage.timed("checkpoint", writer.save)
    evaluate = usage.timed("eval", evaluate)
    evaluate_at = _make_evaluate_at(job, evaluate, writer)
    hooks = _start_hooks(callbacks, state.model)
    last = False
    while not last:
        first = step
        hooks.on_train_batch_begin(first)
        logs = train(steps_to_boundary(first, config))
        interrupted = logs.pop("interrupted", 0) > 0
        step = state.steps_done()
        logs = usage.describe(logs)
        _record(job, step, "train", logs)
        last = step == config.train_steps
        evaluation: Logs = {}
        if last or _is_due(step, config.eval_every_steps):
            evaluation = evaluate_at(first, step, logs)
        else:
            guard.check(state, logs, {}, first, step)
        last = last or state.stopping.is_over()
        saved = (
            last or interrupted or _is_due(step, config.checkpoint_every_steps)
        )
        if saved:
            save(state.variables(), step)
        hooks.on_train_batch_end(step, dict(logs))
        epoch += _end_epoch(hooks, epoch, logs, evaluation)
        if interrupted and not last:
            writer.wait()
            _leave(job, step)
        # Any worker may ask; all must stop at the same step.
        if not last and workers.total(job.strategy, state.model.stop_training):
            last = True
            if not evaluation:
                evaluation = evaluate_at(first, step, logs)
                epoch += _end_epoch(hooks, epoch, logs, evaluation)
            if not saved:
                save(state.variables(), step)
    writer.wait()
    hooks.on_train_end(logs)
    return evaluation


def _leave(job: Job, step: int) -> NoReturn:
    # A worker that left early would look like one that died.
    workers.total(job.strategy, 0)
    raise Interrupted(
        f"interrupted; step {step} of {job.config.train_steps} is saved, and "
        f"the same flags with --model_dir={job.model_dir} go on from there."
    )


def _start_hooks(
    callbacks: Sequence[keras.callbacks.Callback], model: keras.Model
) -> keras.callbacks.CallbackList:
    model.stop_training = False
    hooks = keras.callbacks.CallbackList(list(callbacks), model=model)
    hooks.on_train_begin()
    hooks.on_epoch_begin(0)
    return hooks


def _make_evaluate_at(
    job: Job,
    evaluate: Callable[[], Logs],
    writer: checkpoint_writer.Writer,
) -> Callable[[int, int, Logs], Logs]:
    """Returns what evaluates and judges at a step, and keeps the best."""
    state = job.state

    def evaluate_at(first: int, step: int, logs: Logs) -> Logs:
        evaluation = evaluate()
        _record(job, step, "eval", evaluation)
        guard.check(state, logs, evaluation, first, step)
        if state.stopping.update(evaluation):
            name = state.stopping.name(evaluation)
            best = {"step": step, "metric": name, "value": evaluation[name]}
            writer.save_best(state.variables(), best)
        return evaluation

    return evaluate_at


def steps_to_boundary(step: int, config: TrainConfig) -> int:
    """Returns how many steps the inner loop that starts at `step` has."""
    intervals = (
        config.steps_per_loop,
        config.eval_every_steps,
        config.checkpoint_every_steps,
    )
    to_next = [every - step % every for every in intervals if every]
    window = profile.parse(config.profile)
    if window:
        to_next += [edge - step for edge in window[:2] if edge > step]
    return min(config.train_steps - step, *to_next)


def _record(job: Job, step: int, split: str, logs: Mapping[str, float]) -> None:
    if not workers.is_chief(job.strategy):
        return
    what = f"step {step}: metrics.jsonl could not be written"
    with files.explained(what, job.config.checkpoint_errors):
        metrics_log.append(job.model_dir, step, split, logs)


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
