"""Evaluation apart from a training: of one checkpoint, or of each new one.

Nothing of the training is written: results of `follow` are in
`<model_dir>/evaluator/metrics.jsonl` and `<model_dir>/summaries/evaluator`.
"""

import time
from collections.abc import Callable

import tensorflow as tf

from errors import RequestError
from errors import RunError
from training import announce
from training import checkpoint
from training import files
from training import metrics_log
from training import record
from training.callbacks import summaries
from training.inner_loop import Logs
from training.state import TrainState

_POLL_SECS = 2.0
# Who waits longer than this is told for what, each time.
_SILENT_SECS = 60.0


def run(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    evaluate: Callable[[], Logs],
    config: record.Config,
) -> Logs:
    """Evaluates one checkpoint, or follows a training.

    Args:
        strategy: All its workers must call this.
        state: Receives what is evaluated.
        evaluate: From `inner_loop.make_evaluate`.
        config: Group → flag → value.

    Returns:
        The last metrics; empty if there was nothing new to follow.

    Raises:
        RequestError: as `record.open_run` and `checkpoint.restore`.
        RunError: if no training to follow appears.
    """
    asked = config["run"]
    model_dir, which = checkpoint.find(asked["model_dir"], asked["checkpoint"])
    config = {**config, "run": {**asked, "model_dir": model_dir}}
    follows = asked["mode"] == "follow"
    announce.place(strategy)
    if follows:
        timeout_secs = config["strategy"]["worker_timeout_secs"]
        _wait_for_training(model_dir, timeout_secs)
    record.open_run(strategy, config)
    if follows:
        return _follow(strategy, state, evaluate, model_dir)
    variables = state.evaluated_variables()
    checkpoint.restore(strategy, variables, model_dir, which)
    result = evaluate()
    announce.result(state.steps_done(), result)
    return result


def _wait_for_training(model_dir: str, timeout_secs: float) -> None:
    """Returns once a training has written a checkpoint."""
    deadline = time.monotonic() + timeout_secs
    print(f"Following the training in {model_dir}", flush=True)
    while not checkpoint.list_steps(model_dir):
        if time.monotonic() > deadline:
            raise RunError(
                f"--mode=follow: no checkpoint appeared in {model_dir} within "
                f"{timeout_secs:g} s; start the training with the same "
                "--model_dir, or raise --worker_timeout_secs."
            )
        time.sleep(_POLL_SECS)


def _follow(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    evaluate: Callable[[], Logs],
    model_dir: str,
) -> Logs:
    """Evaluates each new checkpoint until the training has ended.

    A restarted one goes on after the last that it has evaluated. If several
    are new, the oldest comes first; one that the training removes in the
    meantime is passed over. A training that was killed may come back at any
    time, so it is waited for.
    """
    folder = tf.io.gfile.join(model_dir, "evaluator")
    with files.explained(f"{folder} cannot be used"):
        tf.io.gfile.makedirs(folder)
        done = metrics_log.steps(folder)
    before, passed = len(done), 0
    result: Logs = {}
    writer = summaries.create_writer(model_dir, "evaluator")
    spoken = time.monotonic()
    while True:
        # In this order: what was written before the end is not missed.
        has_ended = record.has_ended(model_dir)
        new = [s for s in checkpoint.list_steps(model_dir) if s not in done]
        for step in new:
            done.add(step)
            if not _restore(strategy, state, model_dir, step):
                passed += 1
                continue
            result = evaluate()
            with files.explained(f"step {step}: {folder} cannot be written"):
                metrics_log.append(folder, step, "eval", result)
            summaries.write(writer, {step: result})
            announce.result(step, result)
        if new:
            spoken = time.monotonic()
        elif has_ended:
            break
        elif time.monotonic() - spoken > _SILENT_SECS:
            spoken = time.monotonic()
            print(f"Waiting for a new checkpoint in {model_dir}", flush=True)
        time.sleep(_POLL_SECS)
    writer.close()
    count = len(done) - before - passed
    print(f"The training has ended; evaluated: {count}", flush=True)
    if passed and not count:
        raise RunError(
            f"--mode=follow: none of the {passed} new checkpoints in "
            f"{model_dir} could be read; see the lines above."
        )
    return result


def _restore(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    model_dir: str,
    step: int,
) -> bool:
    variables = state.evaluated_variables()
    try:
        checkpoint.restore(strategy, variables, model_dir, step)
    except RequestError as error:
        # The training keeps only its newest ones.
        print(f"step {step} is passed over: {error}", flush=True)
        return False
    return True
