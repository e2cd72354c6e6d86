"""Peak memory of one training step of a layer, in a process of its own.

    python -m benchmarks._peak '{"layer": "fixed_point", "iterations": 100}'

prints how many megabytes the step added to the built layer and its input.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from model.layers.batched_mat_vec import BatchedMatVec
from model.layers.fixed_point import FixedPoint


def added(**case: Any) -> float:
    """Returns the megabytes that a case adds, measured in a new process.

    Args:
        **case: `layer`, one of the functions below, and its arguments.
    """
    words = [sys.executable, "-m", "benchmarks._peak", json.dumps(case)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(done.stdout)


def shared(*, size: int, batch: int) -> tuple[keras.layers.Layer, list[int]]:
    """One matrix `[size, size]` for all vectors."""
    return BatchedMatVec(size, shared=True, use_bias=False), [batch, 1, size]


def fixed_point(
    *,
    iterations: int,
    gradient: str,
    batch: int = 256,
    groups: int = 64,
    units: int = 256,
) -> tuple[keras.layers.Layer, list[int]]:
    """A state of `batch · groups · units` numbers, iterated to the bound."""
    h, x = keras.Input([groups, units]), keras.Input([groups, units])
    recurrent = BatchedMatVec(
        units,
        shared=True,
        use_bias=False,
        kernel_initializer=keras.initializers.Orthogonal(0.99),
    )
    layer = FixedPoint(
        keras.Model([h, x], keras.ops.tanh(recurrent(h) + x)),
        maximum_iterations=iterations,
        tolerance=0.0,
        gradient=gradient,
    )
    return layer, [batch, groups, units]


_CASES: dict[str, Callable[..., tuple[keras.layers.Layer, list[int]]]] = {
    "shared": shared,
    "fixed_point": fixed_point,
}


def _measure(layer: str, **arguments: Any) -> float:
    built, shape = _CASES[layer](**arguments)
    built.build((None, *shape[1:]))
    features = tf.random.stateless_normal(shape, (1, 2))

    @tf.function(autograph=False)
    def step(features: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(features)
            loss = tf.nn.l2_loss(built(features))
        weights = [weight.value for weight in built.trainable_variables]
        return tape.gradient(loss, [features, *weights])

    # A small step first: what TensorFlow itself needs is there before.
    step(features[:1])
    # Sets the peak to what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("VmRSS")
    step(features)
    return (_kilobytes("VmHWM") - before) / 1024


def _kilobytes(key: str) -> int:
    # Not `getrusage`: its peak is inherited from the process that started us.
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index(f"{key}:") + 1])


if __name__ == "__main__":
    print(_measure(**json.loads(sys.argv[1])))
