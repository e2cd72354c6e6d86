import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainConfig
from training import state as state_lib
from training.callbacks._local_model import LocalModel

FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


class _Metered(keras.layers.Layer):
    """Reports a metric, as layers that iterate do."""

    def __init__(self) -> None:
        super().__init__(name="metered")
        self.mean = keras.metrics.Mean(name="mean_input")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        self.mean.update_state(inputs)
        return inputs


def _make_state(
    strategy: tf.distribute.Strategy, momentum: float | None
) -> state_lib.TrainState:
    with strategy.scope():
        inputs = keras.Input([3], name="features")
        x = _Metered()(inputs)
        x = keras.layers.BatchNormalization(epsilon=0, name="norm")(x)
        x = keras.layers.Dropout(0.5, name="dropout")(x)
        model = keras.Model(inputs, keras.layers.Dense(2, name="out")(x))
        return state_lib.create(model, TrainConfig(ema_momentum=momentum))


def _values(state: state_lib.TrainState) -> list[np.ndarray]:
    return [np.array(variable) for variable in state.model.variables]


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("momentum", [None, 0.5], ids=["raw", "averages"])
def test_predicts_what_an_evaluation_would(
    strategy_of, replicas, momentum
) -> None:
    strategy = strategy_of(replicas)
    state = _make_state(strategy, momentum)
    norm = state.model.get_layer("norm")
    norm.moving_mean.assign([1.0, 2.0, 3.0])
    norm.moving_variance.assign([4.0, 4.0, 4.0])
    kernel = np.arange(6, dtype=np.float32).reshape(3, 2)
    if momentum:
        state.averages[2].assign(kernel)
    else:
        state.model.get_layer("out").kernel.assign(kernel)
    before = _values(state)
    outputs = LocalModel(strategy, state).predict(tf.constant(FEATURES))
    expected = (FEATURES - [1, 2, 3]) / 2 @ kernel
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    for old, new in zip(before, _values(state), strict=True):
        np.testing.assert_array_equal(old, new)


def test_follows_the_weights(strategy_of) -> None:
    strategy = strategy_of(2)
    state = _make_state(strategy, None)
    model = LocalModel(strategy, state)
    out = state.model.get_layer("out")
    for bias in ([1.0, 2.0], [3.0, 4.0]):
        out.kernel.assign(np.zeros([3, 2]))
        out.bias.assign(bias)
        outputs = model.predict(tf.constant(FEATURES))
        np.testing.assert_allclose(outputs, [bias] * 4)


def test_a_graph_has_layers_and_weights_by_name(strategy_of) -> None:
    strategy = strategy_of(1)
    state = _make_state(strategy, None)
    graph = LocalModel(strategy, state).graph(tf.constant(FEATURES))
    names = {node.name for node in graph.node}
    assert {v.path for v in state.model.trainable_variables} <= names
    scopes = {name.split("/")[0] for name in names}
    assert any(scope.startswith("norm") for scope in scopes)
    known = names | {f"^{name}" for name in names}
    for node in graph.node:
        assert {name.partition(":")[0] for name in node.input} <= known
