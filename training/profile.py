"""A window of steps, captured for TensorBoard's profile tab.

`--profile=100:110` starts before step 100 and ends after step 109, on the
chief; `100:110@all` does so on every worker. Inner loops end at both.
"""

import re
import sys
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from training import PROFILE

Train = Callable[[int], dict[str, float]]


class Window(NamedTuple):
    """What to capture."""

    start: int
    """Steps done before it."""
    stop: int
    """Steps done at its end."""
    on_all: bool
    """On every worker, not on the chief alone."""

    def is_open(self, step: int) -> bool:
        """Returns whether the step after `step` is captured."""
        return self.start <= step < self.stop


def parse(words: str) -> Window | None:
    """Returns the window of a value of `--profile`; None for no words."""
    found = re.fullmatch(PROFILE, words)
    if not found:
        return None
    return Window(int(found[1]), int(found[2]), bool(found[3]))


def around(
    train: Train,
    window: Window | None,
    steps_done: Callable[[], int],
    folder: str,
    is_chief: bool,
) -> Train:
    """Returns `train`, with the window captured meanwhile.

    Args:
        train: From `inner_loop.make_train`.
        window: What to capture, if anything.
        steps_done: Returns the number of steps.
        folder: Where TensorBoard looks.
        is_chief: Whether this worker is the chief.
    """
    if window is None or not (is_chief or window.on_all):
        return train
    is_on = False

    def switch() -> None:
        nonlocal is_on
        if is_on == window.is_open(steps_done()):
            return
        is_on = not is_on
        try:
            if is_on:
                tf.profiler.experimental.start(folder)
            else:
                tf.profiler.experimental.stop()
        except tf.errors.OpError as error:
            # Never worth the run.
            text = f"--profile: {error.message}; the run goes on without."
            print(text, file=sys.stderr, flush=True)

    def profiled(num_steps: int) -> dict[str, float]:
        switch()
        logs = train(num_steps)
        switch()
        return logs

    return profiled
