"""Keras's own `fit` as a contestant, timed between ends of batches.

Not by its call: that returns only once a thread of tf.data has ticked, up to
two seconds after the last batch. Its progress bar is off.
"""

import time
from typing import Any

import keras

from benchmarks import _contest

# A number of steps that no turn reaches, and a multiple of every loop's.
_ENDLESS = 10**9


def make(contest: _contest.Contest, **settings: Any) -> _contest.Rate:
    """Returns `fit` on a model and data of its own.

    Args:
        contest: What to train.
        **settings: Arguments of `compile`; none for `fit` as it comes.
    """
    model = _contest.build(contest)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **settings,
    )
    batches = _contest.peer_batches()

    def rate(seconds: float) -> float:
        stopwatch = _Stopwatch(seconds)
        model.fit(
            batches,
            steps_per_epoch=_ENDLESS,
            shuffle=False,  # the dataset does it
            verbose=0,
            callbacks=[stopwatch],
        )
        return stopwatch.rate

    return rate


def make_best(contest: _contest.Contest) -> _contest.Rate:
    """Returns `fit` with as many steps a call as ours, and without XLA."""
    return make(contest, steps_per_execution=contest.steps, jit_compile=False)


class _Stopwatch(keras.callbacks.Callback):
    """Counts steps from the end of the first batch until time is up."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.rate = 0.0
        self._seconds = seconds
        self._start: tuple[int, float] | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = time.perf_counter()
        if self._start is None:
            self._start = batch, now
            return
        first, start = self._start
        if now - start >= self._seconds:
            self.rate = (batch - first) / (now - start)
            self.model.stop_training = True
