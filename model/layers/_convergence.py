"""What iterating layers share: two arguments and three metrics.

Keras finds the metrics of a layer by itself: they are in `model.metrics`, and
whoever trains the model resets and reports them. Padded rows count too.
"""

import math
import numbers

import keras
import tensorflow as tf

from model.layers import _inputs


def check_arguments(maximum_iterations: int | None, tolerance: float) -> None:
    """Refuses what might iterate for ever.

    Raises:
        ValueError: if `maximum_iterations` is not a positive integer or None,
            `tolerance` is not a finite number of 0 or more, or both say that
            there is no end.
    """
    if not isinstance(tolerance, numbers.Real) or not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance={tolerance!r}: must be 0 or more.")
    if maximum_iterations is None:
        if tolerance == 0:
            raise ValueError(
                "tolerance=0: an iteration may never stay still; give "
                "maximum_iterations as well."
            )
    elif not _inputs.is_count(maximum_iterations, 1):
        raise ValueError(
            f"maximum_iterations={maximum_iterations!r}: must be a positive "
            "integer."
        )


def make_metrics(layer: str) -> list[keras.metrics.Mean]:
    """Returns means over the examples since the last reset.

    Their names are `<layer>_iterations`, how many an example took;
    `<layer>_residual`, what was left, in the unit of the layer's tolerance;
    and `<layer>_converged`, the share of examples, 0 to 1, that were left
    with no more than the tolerance.

    Args:
        layer: Name of the layer, whose attribute they must become.
    """
    names = ("iterations", "residual", "converged")
    return [
        keras.metrics.Mean(name=f"{layer}_{name}", dtype="float32")
        for name in names
    ]


def update(
    metrics: list[keras.metrics.Mean],
    iterations: tf.Tensor,
    residual: tf.Tensor,
    tolerance: float | tf.Tensor,
) -> None:
    """Adds a batch.

    Args:
        metrics: As made.
        iterations: `[B]`, integers.
        residual: `[B]`; NaN has not converged.
        tolerance: Largest residual of a converged example, `[]` or `[B]`.
    """
    values = (iterations, residual, residual <= tolerance)
    for metric, value in zip(metrics, values, strict=True):
        metric.update_state(tf.stop_gradient(tf.cast(value, "float32")))
