"""All that a checkpoint holds."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from errors import RequestError
from training import TrainConfig
from training import optimizer as optimizer_lib


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Model, optimizer and step."""

    model: keras.Model
    optimizer: keras.Optimizer
    step: tf.Variable
    """Batches consumed so far, int64 `[]`. Data order, schedule, randomness
    and logging go by it; `optimizer.iterations` counts applied updates only."""

    def variables(self) -> dict[str, tf.Variable]:
        """Returns every variable under a name that says what it is.

        Raises:
            ValueError: if two variables have the same name.
        """
        return self.evaluated_variables() | _named(
            "optimizer", self.optimizer.variables
        )

    def evaluated_variables(self) -> dict[str, tf.Variable]:
        """Returns what an evaluation needs of `variables()`."""
        model = _named("model", self.model.variables)
        return {"step": self.step, **model}


def create(model: keras.Model, config: TrainConfig) -> TrainState:
    """Returns a new state; call it in the strategy's scope.

    The optimizer is built here, eagerly: on several replicas Keras cannot
    build its slots inside a compiled step.

    Args:
        model: Built in the same scope.
        config: Its optimizer flags.

    Raises:
        RequestError: if the model is not built, was built outside the scope,
            or has nothing to train.
    """
    _check_model(model)
    step = tf.Variable(
        0,
        dtype=tf.int64,
        trainable=False,
        name="step",
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    optimizer = optimizer_lib.create(config, step)
    optimizer.build(model.trainable_variables)
    # Keras's callbacks look for it there.
    model.optimizer = optimizer
    return TrainState(model, optimizer, step)


def follow_flags(
    state: TrainState, previous: Mapping[str, Any], config: TrainConfig
) -> None:
    """Gives a continued run a new learning rate, if its flag has changed.

    Otherwise it keeps the one of the checkpoint, which a callback may have
    changed. A schedule has no rate to keep.

    Args:
        state: As restored.
        previous: Group → flag → value at the last start; empty for a new run.
        config: Now.
    """
    constant = config.learning_rate_schedule == "constant"
    before = previous.get("train", {}).get("learning_rate")
    if previous and constant and before != config.learning_rate:
        rate = optimizer_lib.peak_learning_rate(config)
        state.optimizer.learning_rate = rate


def _check_model(model: keras.Model) -> None:
    if not model.built:
        raise RequestError(
            f"--model: {model.name} has no weights yet; its `build` must "
            "return a built model, for example by calling it on an input."
        )
    if not model.trainable_variables:
        raise RequestError(
            f"--model: {model.name} has no trainable weights, so there is "
            "nothing to train."
        )
    strategy = tf.distribute.get_strategy()
    for variable in model.variables:
        if not strategy.extended.variable_created_in_scope(variable.value):
            raise RequestError(
                f"--model: {variable.path} of {model.name} was made outside "
                "the strategy's scope; make the model inside `build`, not "
                "when the module is imported."
            )


def _named(
    prefix: str, variables: list[keras.Variable]
) -> dict[str, tf.Variable]:
    named: dict[str, tf.Variable] = {}
    for variable in variables:
        name = f"{prefix}/{variable.path}"
        if name in named:
            raise ValueError(
                f"two variables are called {variable.path!r}; checkpoints go "
                "by name: give the layers names of their own."
            )
        named[name] = variable.value
    return named
