import keras
import numpy as np
import pytest
import tensorflow as tf

from model import ModelConfig
from model import cnn
from training import TrainConfig
from training import flops
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib

_BATCH = 8


def _count(strategy, layers, features: list[int], **config) -> float:
    """Counts a step of a classifier on a global batch of 8."""

    def build() -> keras.Model:
        x = inputs = keras.Input(features)
        for layer in layers():
            x = layer(x)
        return keras.Model(inputs, keras.layers.Dense(5, name="out")(x))

    return _count_model(strategy, build, features, **config)


def _count_model(strategy, build, features: list[int], **config) -> float:
    with strategy.scope():
        state = state_lib.create(build(), TrainConfig())
    loop = step_lib.make_train_loop(
        strategy,
        state,
        task_lib.resolve(object(), "classification"),
        _BATCH,
        TrainConfig(**config),
    )
    batch = (
        np.zeros([_BATCH, *features], np.float32),
        np.zeros([_BATCH], np.int32),
        np.ones([_BATCH], np.float32),
    )
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    rebatched = dataset.unbatch().batch(_BATCH, drop_remainder=True)
    iterator = iter(strategy.experimental_distribute_dataset(rebatched))
    loop(iterator, tf.constant(1, tf.int64))
    traces = loop.experimental_get_tracing_count()
    share = _BATCH // strategy.num_replicas_in_sync
    found = flops.of_loop(loop, iterator, share)
    assert loop.experimental_get_tracing_count() == traces
    return found


def _convolutions() -> list[keras.layers.Layer]:
    return [
        keras.layers.Conv2D(4, 3, padding="same", name="first"),
        keras.layers.BatchNormalization(name="normalized"),
        keras.layers.Conv2D(6, 3, strides=2, activation="relu", name="second"),
        keras.layers.DepthwiseConv2D(3, padding="same", name="depthwise"),
        keras.layers.Flatten(name="flat"),
        keras.layers.Dense(7, name="hidden"),
    ]


# Multiplications of an example, forward. The first layer's inputs have no
# gradient, all else has two.
_FIRST = 10 * 10 * 3 * 3 * 3 * 4
_REST = (
    4 * 4 * 3 * 3 * 4 * 6  # second
    + 4 * 4 * 6 * 3 * 3  # depthwise
    + 4 * 4 * 6 * 7  # hidden
    + 7 * 5  # out
)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    "config",
    [{}, {"gradient_accumulation_steps": 2}, {"jit_compile": True}],
    ids=["plain", "accumulated", "compiled"],
)
def test_counts_convolutions_by_hand(strategy_of, replicas, config) -> None:
    found = _count(strategy_of(replicas), _convolutions, [10, 10, 3], **config)
    assert found == 2 * _BATCH * (2 * _FIRST + 3 * _REST)


def test_counts_the_cnn_by_hand(strategy_of) -> None:
    features = [28, 28, 1]
    spec = (
        tf.TensorSpec([None, *features]),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([None]),
    )

    def build() -> keras.Model:
        config = ModelConfig(model="cnn", model_options=("filters=32x64",))
        return cnn.build(config, spec, 10)

    found = _count_model(strategy_of(2), build, features)
    first = 28 * 28 * 3 * 3 * 1 * 32
    rest = 14 * 14 * 3 * 3 * 32 * 64 + 7 * 7 * 64 * 10
    assert found == 2 * _BATCH * (2 * first + 3 * rest)


def test_counts_attention_by_hand(strategy_of) -> None:
    def layers() -> list[keras.layers.Layer]:
        attention = keras.layers.MultiHeadAttention(2, 3, name="attention")
        return [
            keras.layers.Dense(8, name="embedded"),
            lambda x: attention(x, x),
            keras.layers.Flatten(name="flat"),
        ]

    found = _count(strategy_of(1), layers, [6, 4])
    # Queries, keys, values, outputs; scores, and what they weigh.
    rest = 4 * 6 * 8 * 2 * 3 + 2 * 2 * 6 * 6 * 3 + 6 * 8 * 5
    assert found == 2 * _BATCH * (2 * 6 * 4 * 8 + 3 * rest)


def test_a_loop_over_data_is_not_counted(strategy_of) -> None:
    class Loop(keras.layers.Layer):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            return tf.while_loop(
                lambda y: tf.reduce_sum(y) > 1, lambda y: (y / 2,), (x,)
            )[0]

    found = _count(strategy_of(1), lambda: [Loop(name="loop")], [3])
    assert np.isnan(found)


def test_a_shape_that_is_not_known_is_not_counted() -> None:
    @tf.function(autograph=False)
    def loop(left: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            made = tf.numpy_function(np.ones_like, [left], tf.float32)
            return i + 1, tf.reduce_sum(tf.linalg.matmul(made, left))

        return tf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]

    traced = loop.get_concrete_function(tf.TensorSpec([4, 4]))
    assert np.isnan(flops.count(traced, 3))


def test_nothing_is_traced_to_count(strategy_of) -> None:
    tf.config.run_functions_eagerly(True)
    try:
        assert np.isnan(flops.of_loop(None, None, 1))
    finally:
        tf.config.run_functions_eagerly(False)


def test_einsum_with_an_ellipsis() -> None:
    @tf.function(autograph=False)
    def loop(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, _: (
                i + 1,
                tf.reduce_sum(tf.einsum("b...i,ij->b...j", left, right)),
            ),
            [0, 0.0],
        )[1]

    traced = loop.get_concrete_function(
        tf.TensorSpec([None, 4, 5, 6]), tf.TensorSpec([6, 7])
    )
    assert flops.count(traced, 3) == 2 * 3 * 4 * 5 * 6 * 7
