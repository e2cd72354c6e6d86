"""Writes checkpoints while the training goes on."""

import concurrent.futures
import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from errors import RunError
from training import checkpoint_files
from training import files
from training import workers
from training.checkpoint_files import BEST
from training.checkpoint_files import NEWEST


class Writer:
    """Writes one checkpoint at a time in a thread of its own.

    A save takes the values of the moment and returns; the thread checks,
    writes and publishes them and removes what is too old. What goes wrong there
    is raised by the next call, on every worker. At the end of the process
    Python itself waits for a checkpoint that is being written.

    All workers must make the same calls: a variable may be spread over them,
    and they must stop together. Only the chief writes.

    Args:
        strategy: The one in whose scope the variables were made.
        model_dir: Folder of the run, which no other process writes.
        keep: How many of the newest checkpoints stay.
        errors: `stop`, or `continue` to print what could not be written, as
            on a full disk, and go on.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model_dir: str,
        keep: int,
        errors: str = "stop",
    ) -> None:
        self._strategy = strategy
        self._model_dir = model_dir
        self._keep = keep
        self._errors = errors
        self._pool = concurrent.futures.ThreadPoolExecutor(
            1, thread_name_prefix="checkpoint"
        )
        self._pending: list[concurrent.futures.Future[None]] = []
        self._step = -1
        if workers.is_chief(strategy):
            for folder in (NEWEST, BEST):
                checkpoint_files.sweep(model_dir, folder)

    def save(self, variables: Mapping[str, tf.Variable], step: int) -> None:
        """Begins a checkpoint of the values of now.

        Args:
            variables: Name → variable, as `TrainState.variables()` gives it.
            step: The step it is named for.

        Raises:
            RunError: on every worker, if an earlier one failed.
        """
        self._begin(variables, step, None)

    def save_best(
        self, variables: Mapping[str, tf.Variable], best: Mapping[str, Any]
    ) -> None:
        """Begins one that is kept apart, in place of the best one before.

        Args:
            variables: As for `save`.
            best: Its `step`, and the `metric` and `value` that made it the
                best; written beside it as best.json.

        Raises:
            RunError: as `save`.
        """
        self._begin(variables, best["step"], best)

    def wait(self) -> None:
        """Returns once all is written.

        Raises:
            RunError: on every worker, if something could not be.
        """
        errors = [future.exception() for future in self._pending]
        self._pending = []
        error = next(filter(None, errors), None)
        failed = workers.total(self._strategy, int(error is not None))
        if error:
            raise error
        if failed:
            raise RunError("the chief could not write a checkpoint: see there.")

    def _begin(
        self,
        variables: Mapping[str, tf.Variable],
        step: int,
        best: Mapping[str, Any] | None,
    ) -> None:
        # The values of one step share their memory; two steps would need the
        # memory twice.
        if step != self._step:
            self.wait()
            self._step = step
        values = _snapshot(variables)
        if workers.is_chief(self._strategy):
            self._pending.append(
                self._pool.submit(self._write, values, step, best)
            )

    def _write(
        self,
        values: Mapping[str, tf.Tensor],
        step: int,
        best: Mapping[str, Any] | None,
    ) -> None:
        _check_finite(values, step)
        folder, keep = (BEST, 1) if best else (NEWEST, self._keep)
        place = (self._model_dir, folder, step)
        explained = checkpoint_files.explained
        try:
            with explained(*place, "the checkpoint could not be written"):
                _write(values, *place)
                if best:
                    path = tf.io.gfile.join(self._model_dir, BEST, "best.json")
                    files.write(path, json.dumps(best) + "\n")
            with explained(*place, "older checkpoints could not be removed"):
                _rotate(*place, keep)
        except RunError as error:
            if self._errors == "stop":
                raise
            print(error, flush=True)


def _snapshot(variables: Mapping[str, tf.Variable]) -> dict[str, tf.Tensor]:
    """Returns the values of now, in the memory of the host.

    There they share the variable's memory, and the next update moves the
    variable elsewhere. On an accelerator that would double what it holds.
    """
    with tf.device("cpu:0"):
        return {name: tf.identity(var) for name, var in variables.items()}


def _check_finite(values: Mapping[str, tf.Tensor], step: int) -> None:
    for name, value in values.items():
        if not value.dtype.is_floating:
            continue
        if not tf.reduce_all(tf.math.is_finite(value)):
            raise RunError(
                f"{name} is not finite at step {step}; the checkpoint before "
                "this step stays the newest."
            )


def _write(
    values: Mapping[str, tf.Tensor], model_dir: str, folder: str, step: int
) -> None:
    tf.io.gfile.makedirs(tf.io.gfile.join(model_dir, folder))
    path = checkpoint_files.prefix(model_dir, folder, step)
    temporary = files.temporary(path)
    if temporary == path:  # without renames the old one is lost from here on
        checkpoint_files.withdraw(path)
    # Below `tf.train.Checkpoint`: its keys are escaped and say how objects
    # were nested; here a key is the variable's name.
    tf.raw_ops.SaveV2(
        prefix=temporary,
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    checkpoint_files.publish(temporary, path, step)


def _rotate(model_dir: str, folder: str, step: int, keep: int) -> None:
    """Removes all but the newest, now that `step` is written.

    A step after it is none of this run's: it was damaged, and passed over when
    the run was continued; or the run was killed, and found another best.
    """
    steps = checkpoint_files.list_steps(model_dir, folder)
    kept = [each for each in steps if each <= step][-keep:]
    checkpoint_files.sweep(model_dir, folder, kept)
