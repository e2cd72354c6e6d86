"""`<model_dir>/report.html`: the run as one page, without any server.

It is not among the default callbacks: Matplotlib, which draws it, is an extra,
and takes a second of the run. `python -m training.report RUN` makes the same
page of any run at any time.
"""

import time

import keras

from training import files
from training.callbacks import Context
from training.report import chart
from training.report import page
from training.report.history import History

# A page at an evaluation takes at most this share of the time; those that
# would take more are left out. The last one is always written.
_SHARE = 0.05


def make(context: Context) -> keras.callbacks.Callback:
    """Returns the callback; it writes on the chief only.

    Raises:
        RequestError: on every worker that has no Matplotlib.
    """
    chart.check_installed()
    return _Report(context) if context.is_chief else keras.callbacks.Callback()


class _Report(keras.callbacks.Callback):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._history = History(context.model_dir)
        self._end = context.train_steps
        self._step = context.start_step
        self._not_before = 0.0

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        self._step = batch

    def on_test_end(self, logs: dict[str, float]) -> None:
        # After the last step there is one more call, with all files in place.
        is_last = self._step == self._end
        if not is_last and time.monotonic() >= self._not_before:
            self._write()

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        self._write()

    def _write(self) -> None:
        # Never worth the run: all that it shows is in metrics.jsonl.
        what = f"step {self._step}: report.html could not be written"
        start = time.monotonic()
        try:
            with files.explained(what, errors="continue"):
                self._history.update()
                page.write(self._history)
        except ImportError as error:
            print(f"{what}: Matplotlib is broken: {error}.", flush=True)
        end = time.monotonic()
        self._not_before = end + (end - start) / _SHARE
