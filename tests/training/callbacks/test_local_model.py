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


class _Counting(keras.layers.Layer):
    """Adds two features, and a weight of zeros."""

    def __init__(self) -> None:
        super().__init__(name="counting")
        self.zero = self.add_weight(shape=[], initializer="zeros")
        self.traced: list[int | None] = []

    def call(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        self.traced.append(inputs["a"].shape[0])
        return {"sum": inputs["a"] + inputs["b"] + self.zero}


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
    # In parts of two sizes.
    model = LocalModel(strategy, state, 3)
    outputs = model.predict(tf.constant(FEATURES))
    expected = (FEATURES - [1, 2, 3]) / 2 @ kernel
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    for old, new in zip(before, _values(state), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("num_examples", "sizes"), [(4, [4]), (9, [4, 1]), (12, [4]), (0, [0])]
)
def test_computes_a_batch_at_a_time(num_examples, sizes) -> None:
    strategy = tf.distribute.get_strategy()
    inputs = {name: keras.Input([3], name=name) for name in ("a", "b")}
    layer = _Counting()
    network = keras.Model(inputs, layer(inputs))
    state = state_lib.create(network, TrainConfig())
    model = LocalModel(strategy, state, 4)
    a = np.arange(3.0 * num_examples, dtype=np.float32).reshape(-1, 3)
    features = {"a": tf.constant(a), "b": tf.constant(a + 7)}
    layer.traced.clear()
    assert model.output_spec(features)["sum"].shape == [sizes[0], 3]
    assert layer.traced == sizes[:1]
    for _ in range(2):
        outputs = model.predict(features)
        np.testing.assert_array_equal(outputs["sum"], a + a + 7)
    model.graph(features)
    assert layer.traced == sizes


def test_follows_the_weights(strategy_of) -> None:
    strategy = strategy_of(2)
    state = _make_state(strategy, None)
    model = LocalModel(strategy, state, 4)
    out = state.model.get_layer("out")
    for bias in ([1.0, 2.0], [3.0, 4.0]):
        out.kernel.assign(np.zeros([3, 2]))
        out.bias.assign(bias)
        outputs = model.predict(tf.constant(FEATURES))
        np.testing.assert_allclose(outputs, [bias] * 4)


def test_a_graph_has_layers_and_weights_by_name(strategy_of) -> None:
    strategy = strategy_of(1)
    state = _make_state(strategy, None)
    graph = LocalModel(strategy, state, 4).graph(tf.constant(FEATURES))
    names = {node.name for node in graph.node}
    assert {v.path for v in state.model.trainable_variables} <= names
    scopes = {name.split("/")[0] for name in names}
    assert any(scope.startswith("norm") for scope in scopes)
    known = names | {f"^{name}" for name in names}
    for node in graph.node:
        assert {name.partition(":")[0] for name in node.input} <= known
