import keras
import numpy as np
import pytest
import tensorflow as tf

from training import average


def _model() -> keras.Model:
    inputs = keras.Input([2])
    layer = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)
    return keras.Model(inputs, layer(inputs))


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_follows_the_formula_on_every_replica(strategy_of, replicas) -> None:
    strategy = strategy_of(replicas)
    with strategy.scope():
        weights = _model().trainable_variables
        averages = average.create(weights)

    @tf.function(autograph=False)
    def step() -> None:
        strategy.run(lambda: average.update(averages, weights, 0.75))

    expected = 1.0
    for value in (3.0, -2.0):
        weights[0].assign(tf.fill([2, 1], value))
        step()
        expected = 0.75 * expected + 0.25 * value
        for copy in strategy.experimental_local_results(averages[0]):
            np.testing.assert_allclose(copy, [[expected]] * 2, rtol=1e-6)


@pytest.mark.parametrize("replicas", [1, 2])
def test_swapped_in_for_a_while_only(strategy_of, replicas) -> None:
    with strategy_of(replicas).scope():
        model = _model()
        averages = average.create(model.trainable_variables)
    averages[0].assign([[5.0], [6.0]])
    features = tf.ones([1, 2])
    with average.swapped_in(averages, model.trainable_variables):
        assert model(features).numpy() == 11.0
    assert model(features).numpy() == 2.0


def test_the_raw_weights_come_back_after_an_error(strategy_of) -> None:
    with strategy_of(1).scope():
        model = _model()
        averages = average.create(model.trainable_variables)
    averages[0].assign([[5.0], [6.0]])

    def fail() -> None:
        with average.swapped_in(averages, model.trainable_variables):
            raise KeyError("in the middle")

    with pytest.raises(KeyError, match="in the middle"):
        fail()
    np.testing.assert_array_equal(model.get_weights()[0], [[1], [1]])


def test_without_averages_nothing_is_swapped() -> None:
    model = _model()
    with average.swapped_in([], model.trainable_variables):
        np.testing.assert_array_equal(model.get_weights()[0], [[1], [1]])
