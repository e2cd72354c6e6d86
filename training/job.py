"""What the parts of a training run share."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from training import TrainConfig
from training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Job:
    """One training run on this worker."""

    strategy: tf.distribute.Strategy
    """The one in whose scope `state` was made."""
    state: TrainState
    """Model, optimizer and step; changed by the run."""
    config: TrainConfig
    """How long, and what is due when."""
    model_dir: str
    """Folder of the run; the chief writes it."""
    stop: tf.Variable
    """Set to 1 when this worker is asked to stop; as for `step`."""
    count_flops: Callable[[], float] | None = None
    """As for `usage`."""


def make_stop() -> tf.Variable:
    """Returns a variable for `Job.stop`; call it outside the scope."""
    with tf.device("cpu:0"):
        return tf.Variable(0, dtype=tf.int32, trainable=False)
