"""A network of unlimited depth: the state at which one layer stays still.

    python train.py --model=equilibrium --model_options=units=64,filters=32

On the digits, 1,500 steps of 64 examples with the default settings gave a test
accuracy of 98.9, 98.3 and 98.9 % (three seeds), after 14 iterations.

The features become `N` groups of `K` values. Each group `n` is embedded by a
matrix of its own, `x[n] = V[n] @ features[n] + c[n]`; its state is the fixed
point of `h[n] = tanh(W[n] @ h[n] + x[n])`; one linear layer reads all states.
`W[n]` is kept a contraction, or training makes the iteration wander: without
the bound 99 % of the examples did not converge in 20 iterations.

References: Bai, Kolter and Koltun (2019), Deep Equilibrium Models,
https://arxiv.org/abs/1909.01377; ours is small and grouped. El Ghaoui et al.
(2019), Implicit Deep Learning, https://arxiv.org/abs/1908.06315, section 2.3:
the bound in the maximum norm.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras

import options as options_lib
from errors import RequestError
from model import ModelConfig
from model import _features
from model.layers.batched_mat_vec import BatchedMatVec
from model.layers.fixed_point import FixedPoint


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of `equilibrium`."""

    filters: int = 32
    """Filters of the 3x3 convolution and 2x2 pooling in front, for an image
    `[height, width, channels]`; 0: none. Other features never have it."""
    groups: int = 0
    """Number of groups `N`, which must divide the number of values. 0: the
    rows of a feature of two axes or more; else one group."""
    units: int = 64
    """Size of the state of one group. Positive."""
    maximum_iterations: int = 50
    """Bound on the iterations of the fixed point. Positive."""
    tolerance: float = 1e-3
    """Largest change of a state, of size at most 1, at the end."""
    contraction: float = 0.9
    """Bound, in (0, 1), on the factor by which an iteration changes the
    largest difference of two states."""

    split_groups: bool = False
    """Whether the logical devices of a replica share the groups."""

    def __post_init__(self) -> None:
        for name in ("filters", "groups", "tolerance"):
            if not getattr(self, name) >= 0:
                raise ValueError(
                    f"{name}={getattr(self, name)}: must be 0 or more."
                )
        for name in ("units", "maximum_iterations"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)}: must be positive."
                )
        if not 0 < self.contraction < 1:
            raise ValueError(
                f"contraction={self.contraction}: must be between 0 and 1."
            )


@keras.saving.register_keras_serializable(package="keras_template")
class MaxAbsSum(keras.constraints.Constraint):
    """Scales the weights of a unit whose absolute values exceed a sum.

    With it `h ↦ tanh(W @ h + x)` shrinks the maximum norm of a difference by
    `limit` or more: there is one fixed point, and iteration finds it.

    Args:
        limit: Largest sum over axis -2, the input's. Positive.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def __call__(self, w: Any) -> Any:
        total = keras.ops.sum(keras.ops.abs(w), axis=-2, keepdims=True)
        return w * (self.limit / keras.ops.maximum(total, self.limit))

    def get_config(self) -> dict[str, float]:
        return {"limit": self.limit}


def build(
    config: ModelConfig, element_spec: Sequence[Any], num_outputs: int
) -> keras.Model:
    """Builds the model; see `model` for the arguments.

    Raises:
        RequestError: for a wrong option.
    """
    chosen = options_lib.parse(config.model_options, Options, "model_options")
    inputs = _features.make_inputs(element_spec)
    if chosen.filters and _features.is_image(element_spec):
        x = _convolve(inputs, chosen.filters)
    elif isinstance(inputs, dict):
        x = _features.concatenate(inputs)
    else:
        x = _features.to_float("features", inputs)
    x = _group(x, chosen.groups)
    x = BatchedMatVec(
        chosen.units, split_groups=chosen.split_groups, name="embedding"
    )(x)
    state = FixedPoint(
        _cell(x.shape[1], chosen),
        maximum_iterations=chosen.maximum_iterations,
        tolerance=chosen.tolerance,
        name="fixed_point",
    )(x)
    outputs = keras.layers.Dense(
        num_outputs,
        dtype=keras.config.dtype_policy().variable_dtype,
        name="outputs",
    )(keras.layers.Flatten(name="flat")(state))
    return keras.Model(inputs, outputs, name="equilibrium")


def _convolve(images: keras.KerasTensor, filters: int) -> keras.KerasTensor:
    x = _features.to_float("features", images)
    convolve = keras.layers.Conv2D(
        filters, 3, padding="same", activation="relu", name="conv"
    )
    pool = keras.layers.MaxPooling2D(2, padding="same", name="pool")
    return pool(convolve(x))


def _group(x: keras.KerasTensor, groups: int) -> keras.KerasTensor:
    """Reshapes `[B, ...]` to `[B, N, K]`."""
    groups = groups or (x.shape[1] if len(x.shape) > 2 else 1)
    size = math.prod(x.shape[1:])
    if size % groups:
        raise RequestError(
            f"--model_options: groups={groups} does not divide the {size} "
            "values of an example; choose a divisor, or 0."
        )
    return keras.layers.Reshape([groups, size // groups], name="groups")(x)


def _cell(groups: int, chosen: Options) -> keras.Model:
    # A Functional model casts to the dtype of its inputs, float32 by default.
    dtype = keras.config.dtype_policy().compute_dtype
    h = keras.Input([groups, chosen.units], dtype=dtype, name="h")
    x = keras.Input([groups, chosen.units], dtype=dtype, name="x")
    # The weights of one unit are K values of Euclidean length c / sqrt(K), so
    # their absolute values add up to c at the most.
    gain = chosen.contraction / math.sqrt(chosen.units)
    recurrent = BatchedMatVec(
        chosen.units,
        use_bias=False,
        split_groups=chosen.split_groups,
        kernel_initializer=keras.initializers.Orthogonal(gain),
        kernel_constraint=MaxAbsSum(chosen.contraction),
        name="recurrent",
    )
    total = keras.layers.Add(name="add")([recurrent(h), x])
    state = keras.layers.Activation("tanh", name="tanh")(total)
    return keras.Model([h, x], state, name="cell")
