"""What is shown or reported between inner loops.

A public module here is a callback; its name is a value of `--callbacks`. It
provides

    make(context: Context) -> keras.callbacks.Callback

The hooks are Keras's. `on_train_batch_end(step, logs)` comes once for each
inner loop, with the number of steps done so far, as with Keras's own
`steps_per_execution`. `on_test_end(logs)` comes after an evaluation, which
also counts as the end of an epoch: `on_epoch_end(n, logs)` has the training
logs and the evaluation's with the prefix `val_`. `logs` are floats, the same
on every worker. Callbacks run on every worker; what keeps files or prints
must look at `context.is_chief`.
"""

import dataclasses
import typing

if typing.TYPE_CHECKING:
    from training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Context:
    """What a callback may need to know."""

    state: "TrainState"
    model_dir: str
    is_chief: bool
    """Whether this worker keeps files and prints."""
    start_step: int
    """The step this start continues from."""
    train_steps: int
    """The step at which the run ends."""
