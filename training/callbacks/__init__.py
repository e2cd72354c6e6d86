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

A class derived from `keras.callbacks.Callback` that is made without arguments
will do as well.
"""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from errors import RequestError

if typing.TYPE_CHECKING:
    import keras
    import tensorflow as tf

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
    strategy: "tf.distribute.Strategy | None" = None
    """The one in whose scope `state` was made."""
    steps_per_epoch: float = 0.0
    """Global batches in a pass over the training data; 0: not known."""
    config: Mapping[str, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )
    """Group → flag → value."""
    sample: Callable[[int], tuple[Any, Any]] | None = None
    """Reads the first n examples of split `eval`, or fewer, on this worker
    alone: tensors `(features, labels)`."""


def create(
    name: str, found: ModuleType | type, context: Context
) -> "keras.callbacks.Callback":
    """Makes one value of `--callbacks`.

    Args:
        name: The value.
        found: The module or the class that it means.
        context: What a module's `make` is given.

    Raises:
        RequestError: if it is neither a module with `make` nor a class of
            Keras callbacks that is made without arguments.
    """
    advice = "write a module with make(context) that returns the callback"
    if not inspect.isclass(found):
        make = getattr(found, "make", None)
        if make is None:
            raise RequestError(f"--callbacks={name}: has no make; {advice}.")
        return make(context)
    # Not above: nothing in this file needs TensorFlow.
    import keras

    if not issubclass(found, keras.callbacks.Callback):
        raise RequestError(
            f"--callbacks={name}: is not derived from keras.callbacks.Callback"
            f"; {advice}."
        )
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise RequestError(
            f"--callbacks={name}: cannot be made without arguments "
            f"({error}); {advice}."
        ) from error
    return found()
