"""When to end a run whose data cannot be read, and what to say.

Wraps what trains and what evaluates. Nothing happens until they fail, or
report rows that were skipped.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from data import DataConfig
from errors import RunError

Logs = dict[str, float]
# (split, seed=, steps=) → which example is bad and why; empty if none is
FindBad = Callable[..., str]

_GO_ON = " The same flags go on from the newest checkpoint."
_HINT = (
    " Mend it, or train on without such examples: --skip_bad_examples." + _GO_ON
)


def guard_train(
    train: Callable[[int], Logs],
    find_bad: FindBad,
    config: DataConfig,
    *,
    seed: int,
    step: Callable[[], int],
) -> Callable[[int], Logs]:
    """Returns `train`, ending the run at one bad example too many.

    Args:
        train: Trains for a number of steps. With `config.skip_bad_examples`
            its logs have `skipped_examples`, the rows of weight 0 that all
            workers met.
        find_bad: `distribute.find_bad` of this run.
        config: How many may be skipped, counted from here.
        seed: Of the training order.
        step: Tells the step that training is at.

    Returns:
        A function like `train`. It raises `RunError`, naming an example.
    """
    total = 0

    def guarded(num_steps: int) -> Logs:
        nonlocal total
        first = step()
        try:
            logs = train(num_steps)
        except tf.errors.OpError as error:
            # The step may have been counted before its input failed.
            steps = range(max(step() - 1, first), step() + 1)
            _raise_if_bad(error, find_bad, "train", seed=seed, steps=steps)
            raise
        total += int(logs.get("skipped_examples", 0))
        if total > config.skip_bad_examples:
            steps = range(first, step())
            which = find_bad("train", seed=seed, steps=steps)
            raise RunError(
                f"training met {total} examples that cannot be read, more "
                f"than --skip_bad_examples={config.skip_bad_examples}, up to "
                f"step {step()}"
                + (f"; one is {which}." if which else ".")
                + " Mend them, or raise --skip_bad_examples."
                + _GO_ON
            )
        return logs

    return guarded


def guard_eval(
    evaluate: Callable[[], Logs], find_bad: FindBad
) -> Callable[[], Logs]:
    """Returns `evaluate`, ending the run with `RunError` at a bad example."""

    def guarded() -> Logs:
        try:
            return evaluate()
        except tf.errors.OpError as error:
            _raise_if_bad(error, find_bad, "eval")
            raise

    return guarded


def _raise_if_bad(
    error: tf.errors.OpError, find_bad: FindBad, split: str, **steps: Any
) -> None:
    # Memory may be short, or a worker gone: no reason to read the data again.
    if "GetNext" not in error.message:
        return
    which = find_bad(split, **steps)
    if which:
        raise RunError(f"cannot read {which}." + _HINT) from error
