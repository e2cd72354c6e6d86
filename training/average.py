"""The exponential moving average of the weights.

After each applied step `average ← m·average + (1 - m)·weight`, starting from
the initial weights. Training goes on with the raw weights; evaluation, the
best checkpoint and the export use the average.

Polyak and Juditsky (1992); the exponential form as in Keras's optimizers, of
which `ema_overwrite_frequency` fails on several replicas.
"""

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence

import keras
import tensorflow as tf


def create(variables: Sequence[keras.Variable]) -> list[tf.Variable]:
    """Returns an average of each variable; call it in the strategy's scope."""
    return [
        tf.Variable(variable.value, trainable=False, name="average")
        for variable in variables
    ]


def update(
    averages: Sequence[tf.Variable],
    variables: Sequence[keras.Variable],
    momentum: float,
) -> None:
    """Moves each average towards its variable; call it in replica context."""
    for average, variable in zip(averages, variables, strict=True):
        value = tf.convert_to_tensor(variable.value)
        average.assign(momentum * average + (1 - momentum) * value)


@contextlib.contextmanager
def swapped_in(
    averages: Sequence[tf.Variable], variables: Sequence[keras.Variable]
) -> Iterator[None]:
    """Lets the variables hold the averages for a while.

    Without averages nothing happens. Call it in cross-replica context.
    """
    raw = [tf.identity(variable.value) for variable in variables]
    pairs = list(zip(variables, averages, strict=False))
    for variable, average in pairs:
        variable.assign(tf.identity(average))
    try:
        yield
    finally:
        for (variable, _), value in zip(pairs, raw, strict=False):
            variable.assign(value)
