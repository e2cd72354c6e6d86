import keras
import pytest

from errors import RequestError
from training import TrainConfig
from training import state as state_lib


def _model(name: str = "dense") -> keras.Model:
    inputs = keras.Input([2])
    outputs = keras.layers.Dense(1, name=name)(inputs)
    return keras.Model(inputs, outputs, name="tiny")


def test_variables_have_names_that_say_what_they_are(strategy_of) -> None:
    with strategy_of(2).scope():
        state = state_lib.create(_model(), TrainConfig(optimizer="adam"))
    assert set(state.evaluated_variables()) == {
        "step",
        "model/dense/kernel",
        "model/dense/bias",
    }
    assert set(state.variables()) - set(state.evaluated_variables()) == {
        "optimizer/adam/iteration",
        "optimizer/adam/learning_rate",
        "optimizer/adam/dense_kernel_momentum",
        "optimizer/adam/dense_kernel_velocity",
        "optimizer/adam/dense_bias_momentum",
        "optimizer/adam/dense_bias_velocity",
        "stopping/best",
        "stopping/stale",
        "asked_rate",
    }


def test_callbacks_find_the_optimizer(strategy_of) -> None:
    with strategy_of(1).scope():
        state = state_lib.create(_model(), TrainConfig())
    assert state.model.optimizer is state.optimizer


def test_seeds_of_random_layers_are_no_part_of_it(strategy_of) -> None:
    """They are set before every step to a function of seed and step."""
    with strategy_of(1).scope():
        model = keras.Sequential(
            [
                keras.Input([2]),
                keras.layers.Dropout(0.5, name="dropout"),
                keras.layers.Dense(1, name="dense"),
            ]
        )
        state = state_lib.create(model, TrainConfig())
    assert not any("seed_generator" in name for name in state.variables())


def test_averages_are_evaluated_and_kept(strategy_of) -> None:
    with strategy_of(2).scope():
        state = state_lib.create(_model(), TrainConfig(ema_momentum=0.9))
    names = {"average/dense/kernel", "average/dense/bias"}
    assert names <= set(state.evaluated_variables())


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("float32", False), ("mixed_bfloat16", False), ("mixed_float16", True)],
)
def test_float16_has_a_loss_scale(strategy_of, policy, expected) -> None:
    keras.config.set_dtype_policy(policy)
    with strategy_of(1).scope():
        state = state_lib.create(_model(), TrainConfig())
    found = {n for n in state.variables() if n.startswith("loss_scale/")}
    assert bool(state.loss_scale) is bool(found) is expected


def test_a_model_from_outside_the_scope_is_refused(strategy_of) -> None:
    model = _model()
    with (
        strategy_of(2).scope(),
        pytest.raises(RequestError, match=r"dense/kernel.*outside"),
    ):
        state_lib.create(model, TrainConfig())


def test_a_model_that_is_not_built_is_refused(strategy_of) -> None:
    with strategy_of(1).scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        with pytest.raises(RequestError, match="no weights yet"):
            state_lib.create(model, TrainConfig())


def test_a_model_without_weights_is_refused(strategy_of) -> None:
    with strategy_of(1).scope():
        inputs = keras.Input([2])
        model = keras.Model(inputs, keras.layers.ReLU()(inputs))
        with pytest.raises(RequestError, match="no trainable weights"):
            state_lib.create(model, TrainConfig())


class _Twins(keras.Model):
    def __init__(self) -> None:
        super().__init__(name="twins")
        self.one = keras.layers.Dense(1, name="same")
        self.two = keras.layers.Dense(1, name="same")

    def call(self, inputs):
        return self.one(inputs) + self.two(inputs)


def test_equal_names_are_refused(strategy_of) -> None:
    with strategy_of(1).scope():
        model = _Twins()
        model(keras.ops.ones([1, 2]))
        with pytest.raises(RequestError, match="two variables are called"):
            state_lib.create(model, TrainConfig())


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(None, 0.025), (0.1, 0.025), (0.3, 0.3)],
    ids=["default", "same flag keeps a callback's rate", "other flag wins"],
)
def test_learning_rate_after_a_restart(strategy_of, asked, expected) -> None:
    """A restart that is killed before its first checkpoint changes nothing."""
    first = 0.001 if asked is None else 0.1
    with strategy_of(2).scope():
        state = state_lib.create(_model(), TrainConfig(learning_rate=first))
    state.optimizer.learning_rate = 0.025  # by a callback; then as restored
    state_lib.follow_flags(state, TrainConfig(learning_rate=asked))
    rate = state.optimizer.learning_rate.numpy()
    assert float(rate) == pytest.approx(expected)


def test_a_schedule_has_no_rate_to_keep(strategy_of) -> None:
    config = TrainConfig(learning_rate_schedule="cosine", learning_rate=0.1)
    with strategy_of(1).scope():
        state = state_lib.create(_model(), config)
    state.asked_rate.assign(0.3)
    state_lib.follow_flags(state, config)
    rate = state.optimizer.learning_rate.numpy()
    assert float(rate) == pytest.approx(0.1)
