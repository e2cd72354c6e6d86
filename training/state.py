"""All that a checkpoint holds."""

import dataclasses

import keras
import tensorflow as tf

from errors import RequestError
from training import TrainConfig
from training import average
from training import initial_model
from training import loss_scale as loss_scale_lib
from training import optimizer as optimizer_lib
from training import randomness
from training import stopping as stopping_lib


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Model, optimizer, step, and what goes with them."""

    model: keras.Model
    optimizer: keras.Optimizer
    step: tf.Variable
    """Batches consumed so far, int64 `[]`. Data order, schedule, randomness
    and logging go by it; `optimizer.iterations` counts applied updates only."""
    averages: list[tf.Variable]
    """Moving average of each trainable weight; empty if there is none."""
    loss_scale: loss_scale_lib.LossScale | None
    """Present if the model computes in float16."""
    stopping: stopping_lib.Stopping
    """The best evaluation so far."""
    asked_rate: tf.Variable
    """float64 `[]`, the learning rate of the flags, which a callback may have
    changed since."""

    def steps_done(self) -> int:
        """Returns the value of `step`, which waits for what computes it."""
        return int(self.step.numpy())

    def variables(self) -> dict[str, tf.Variable]:
        """Returns every variable under a name that says what it is.

        Raises:
            RequestError: if two variables have the same name.
        """
        return {
            **self.evaluated_variables(),
            **_named("optimizer", self.optimizer.variables),
            **(self.loss_scale.variables() if self.loss_scale else {}),
            **self.stopping.variables(),
            "asked_rate": self.asked_rate,
        }

    def evaluated_variables(self) -> dict[str, tf.Variable]:
        """Returns what an evaluation needs of `variables()`."""
        seeds = {id(seed) for seed in randomness.seeds_of(self.model)}
        kept = [v for v in self.model.variables if id(v) not in seeds]
        averages = {
            f"average/{weight.path}": average
            for weight, average in zip(
                self.model.trainable_variables, self.averages, strict=False
            )
        }
        return {"step": self.step, **_named("model", kept), **averages}


def create(model: keras.Model, config: TrainConfig) -> TrainState:
    """Returns a new state; call it in the strategy's scope.

    The optimizer is built here, eagerly: on several replicas Keras cannot
    build its slots inside a compiled step.

    Args:
        model: Built in the same scope.
        config: Its flags of optimizer, average and stopping, and of layers
            that are not to be trained.

    Raises:
        RequestError: if the model is not built, was built outside the scope,
            has nothing to train, or two variables of the same name; or as
            `initial_model.freeze`.
    """
    _check_model(model)
    initial_model.freeze(model, config.initial_model)
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
    weights = model.trainable_variables
    averaged = config.ema_momentum is not None
    halved = keras.config.dtype_policy().compute_dtype == "float16"
    asked_rate = optimizer_lib.peak_learning_rate(config)
    state = TrainState(
        model,
        optimizer,
        step,
        average.create(weights) if averaged else [],
        loss_scale_lib.create() if halved else None,
        stopping_lib.create(config.early_stopping),
        tf.Variable(asked_rate, dtype=tf.float64, trainable=False),
    )
    state.variables()  # refuses equal names while nothing is lost
    return state


def follow_flags(state: TrainState, config: TrainConfig) -> None:
    """Gives a continued run a new learning rate, if its flag has changed.

    Otherwise it keeps the one of the checkpoint, which a callback may have
    changed. A schedule has no rate to keep.

    Args:
        state: As restored.
        config: Now.
    """
    asked = optimizer_lib.peak_learning_rate(config)
    constant = config.learning_rate_schedule == "constant"
    if constant and float(state.asked_rate.numpy()) != asked:
        state.optimizer.learning_rate = asked
    state.asked_rate.assign(asked)


def _check_model(model: keras.Model) -> None:
    if not model.built:
        raise RequestError(
            f"--model: {model.name} has no weights yet; its `build` must "
            "return a built model, for example by calling it on an input."
        )
    if not model.trainable_variables:
        raise RequestError(
            f"--model: {model.name} has no trainable weights, so there is "
            "nothing to train; leave some layers trainable."
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
            raise RequestError(
                f"--model: two variables are called {variable.path!r}; "
                "checkpoints go by name: give the layers names of their own."
            )
        named[name] = variable.value
    return named
