"""A window of steps, captured for TensorBoard's profile tab.

`--profile=100:110` starts before step 100 and ends after step 109, on the
chief; `100:110@all` does so on every worker. Inner loops end at both.
"""

import contextlib
import re
import sys
from collections.abc import Callable
from collections.abc import Iterator
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


@contextlib.contextmanager
def around(
    train: Train,
    window: Window | None,
    steps_done: Callable[[], int],
    folder: str,
    is_chief: bool,
) -> Iterator[Train]:
    """Yields `train`, with the window captured meanwhile.

    What has been captured is written at the end of the context at the latest:
    the run may end within the window, or fail.

    Args:
        train: From `inner_loop.make_train`.
        window: What to capture, if anything.
        steps_done: Returns the number of steps.
        folder: Where TensorBoard looks.
        is_chief: Whether this worker is the chief.
    """
    if window is None or not (is_chief or window.on_all):
        yield train
        return
    is_on = False

    def switch(to: bool) -> None:
        nonlocal is_on
        if is_on == to:
            return
        is_on = to
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
        switch(window.is_open(steps_done()))
        logs = train(num_steps)
        switch(window.is_open(steps_done()))
        return logs

    try:
        yield profiled
    finally:
        switch(False)
