"""Optimizer and learning rate schedule from their flags."""

import ast
import dataclasses
import importlib
import inspect
import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import options as options_lib
from errors import RequestError
from errors import missing_is_wrong
from training import OPTIMIZERS
from training import TrainConfig

_RATES = {"sgd": 0.1, "adam": 1e-3, "adamw": 1e-3}
_BUILT_IN = {
    "sgd": keras.optimizers.SGD,
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
}
# Keras clips before the gradients are summed over replicas, so that the step
# grows with their number; the rest breaks in a compiled loop on several. What
# takes their place has a flag of its own.
_REFUSED = {
    "clipnorm": "global_clipnorm",
    "clipvalue": "global_clipnorm",
    "global_clipnorm": "global_clipnorm",
    "use_ema": "ema_momentum",
    "ema_momentum": "ema_momentum",
    "ema_overwrite_frequency": "ema_momentum",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "loss_scale_factor": "dtype_policy",
}
_FLAGS = {"learning_rate", "weight_decay"}
_SCHEDULE = "learning_rate_schedule"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """What may follow the colon of `--learning_rate_schedule`."""

    warmup_steps: int = 0
    """Steps in which the rate rises from 0, linearly."""
    boundaries: tuple[int, ...] = ()
    """`piecewise`: rising steps from which on the rate is smaller."""
    factor: float = 0.1
    """`piecewise`: what the rate is multiplied by at each boundary."""


class _Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly to the peak, then follows a shape.

    Keras hands a schedule its `iterations`, the number of applied updates.
    What counts here is `step`, the number of batches consumed.
    """

    def __init__(
        self,
        step: tf.Variable,
        peak: float,
        warmup: int,
        shape: Callable[[tf.Tensor], tf.Tensor],
    ) -> None:
        self._step = step
        self._peak = peak
        self._warmup = warmup
        self._shape = shape

    def __call__(self, iterations: tf.Tensor) -> tf.Tensor:
        del iterations
        step = tf.cast(tf.convert_to_tensor(self._step), tf.float32)
        rise = (step + 1) / max(1, self._warmup)
        return self._peak * tf.where(
            step < self._warmup, rise, self._shape(step)
        )

    def get_config(self) -> dict[str, Any]:
        return {"peak": self._peak, "warmup": self._warmup}


def create(config: TrainConfig, step: tf.Variable) -> keras.Optimizer:
    """Returns the optimizer, not built yet. Call it in the strategy's scope.

    Args:
        config: Its optimizer and learning rate flags.
        step: Batches consumed, int64 `[]`; what a schedule goes by.

    Raises:
        RequestError: for a class that is no Keras optimizer, an unknown
            option, or one that gives other numbers on several replicas.
    """
    cls = _find_class(config.optimizer)
    arguments = _read_arguments(cls, config.optimizer_options)
    if config.weight_decay is not None:
        arguments["weight_decay"] = config.weight_decay
    try:
        optimizer = cls(learning_rate=_schedule(config, step), **arguments)
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"--optimizer_options={','.join(config.optimizer_options)}: "
            f"{config.optimizer} refuses them: {error}"
        ) from error
    # The step has summed over replicas already, before clipping. Not public:
    # a test fails if Keras changes it.
    optimizer._all_reduce_sum_gradients = list
    return optimizer


def peak_learning_rate(config: TrainConfig) -> float:
    """Returns the learning rate asked for, or the optimizer's default."""
    if config.learning_rate is not None:
        return config.learning_rate
    if config.optimizer in _RATES:
        return _RATES[config.optimizer]
    parameters = inspect.signature(_find_class(config.optimizer)).parameters
    return parameters["learning_rate"].default


def learning_rate(optimizer: keras.Optimizer) -> float:
    """Returns the learning rate in force.

    A mirrored variable refuses `float()`; its `numpy()` works everywhere.
    """
    return float(optimizer.learning_rate.numpy())


def _schedule(config: TrainConfig, step: tf.Variable) -> Any:
    """Returns a number, or a schedule that goes by `step`."""
    name, _, words = config.learning_rate_schedule.partition(":")
    options = options_lib.parse(words, ScheduleOptions, _SCHEDULE)
    peak = peak_learning_rate(config)
    _check_schedule(name, options, config)
    if name == "constant" and not options.warmup_steps:
        # A plain number stays a variable that callbacks may change.
        return peak
    warmup, end = options.warmup_steps, config.train_steps
    shapes = {
        "constant": tf.ones_like,
        "cosine": lambda at: _half_cosine((at - warmup) / (end - warmup)),
        "piecewise": lambda at: (
            options.factor ** _count_reached(options.boundaries, at)
        ),
    }
    return _Schedule(step, peak, warmup, shapes[name])


def _half_cosine(done: tf.Tensor) -> tf.Tensor:
    return (1 + tf.cos(math.pi * tf.clip_by_value(done, 0.0, 1.0))) / 2


def _count_reached(boundaries: tuple[int, ...], step: tf.Tensor) -> tf.Tensor:
    reached = step >= tf.constant(boundaries, tf.float32)
    return tf.reduce_sum(tf.cast(reached, tf.float32))


def _check_schedule(
    name: str, options: ScheduleOptions, config: TrainConfig
) -> None:
    given = f"--{_SCHEDULE}={config.learning_rate_schedule}"
    if not 0 <= options.warmup_steps < config.train_steps:
        raise RequestError(
            f"{given}: warmup_steps must be from 0 to less than "
            f"--train_steps={config.train_steps}."
        )
    boundaries = options.boundaries
    if (name == "piecewise") != bool(boundaries):
        raise RequestError(
            f"{given}: boundaries, such as boundaries=500x800, belong to "
            "piecewise, which needs them."
        )
    if list(boundaries) != sorted(set(boundaries)) or 0 in boundaries:
        raise RequestError(f"{given}: boundaries must rise, from 1 on.")
    if not 0 < options.factor < math.inf:
        raise RequestError(f"{given}: factor must be above 0.")


def _find_class(name: str) -> type[keras.Optimizer]:
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    path, _, attribute = name.rpartition(".")
    found = None
    if path:
        with missing_is_wrong(path, f"--optimizer={name}"):
            found = getattr(importlib.import_module(path), attribute, None)
    if inspect.isclass(found) and issubclass(found, keras.Optimizer):
        return found
    raise RequestError(
        f"--optimizer={name}: is no Keras optimizer class; it must be one of "
        f"{', '.join(OPTIMIZERS)}, or a path such as keras.optimizers.Lion."
    )


def _read_arguments(
    cls: type[keras.Optimizer], words: tuple[str, ...]
) -> dict[str, Any]:
    flag = "optimizer_options"
    known = set(inspect.signature(cls).parameters) - {"kwargs", "name"}
    allowed = ", ".join(sorted(known - _REFUSED.keys() - _FLAGS))
    arguments = {}
    for key, word in options_lib.split(words, flag).items():
        if key in _REFUSED:
            raise RequestError(
                f"--{flag}: {key} gives other numbers on several replicas "
                f"than on one; see --{_REFUSED[key]}, or use one of {allowed}."
            )
        if key in _FLAGS:
            raise RequestError(f"--{flag}: {key} has a flag: use --{key}.")
        if key not in known:
            raise RequestError(
                f"--{flag}: unknown key {key!r}; {cls.__name__} has {allowed}."
            )
        arguments[key] = _literal(word)
    return arguments


def _literal(word: str) -> Any:
    """Reads numbers, `true`, `false`; anything else stays a string."""
    try:
        return ast.literal_eval(word.capitalize() if word.isalpha() else word)
    except (ValueError, SyntaxError):
        return word
