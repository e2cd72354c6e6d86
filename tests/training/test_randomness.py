import keras
import numpy as np
import pytest
import tensorflow as tf

from training import randomness


def _masks(strategy, seed: int, step: int) -> list[bytes]:
    """Returns what two dropout layers let through, on each replica."""
    with strategy.scope():
        inputs = keras.Input([64])
        first = keras.layers.Dropout(0.5)(inputs)
        second = keras.layers.Dropout(0.5)(inputs)
        model = keras.Model(inputs, [first, second])
        counter = tf.Variable(step, dtype=tf.int64)

    @tf.function(autograph=False)
    def run():
        def replica_fn():
            randomness.reseed(randomness.seeds_of(model), seed, counter)
            return model(tf.ones([1, 64]), training=True)

        return strategy.run(replica_fn)

    return [
        copy.numpy().tobytes()
        for values in run()
        for copy in strategy.experimental_local_results(values)
    ]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_every_replica_and_layer_draws_its_own(strategy_of, replicas) -> None:
    masks = _masks(strategy_of(replicas), seed=1, step=5)
    assert len(set(masks)) == 2 * replicas
    assert masks == _masks(strategy_of(replicas), seed=1, step=5)


def test_seed_and_step_matter(strategy_of) -> None:
    strategy = strategy_of(2)
    base = _masks(strategy, seed=1, step=5)
    assert not set(base) & set(_masks(strategy, seed=2, step=5))
    assert not set(base) & set(_masks(strategy, seed=1, step=6))


def test_a_replica_draws_the_same_among_any_number(strategy_of) -> None:
    alone = _masks(strategy_of(1), seed=3, step=9)
    among = _masks(strategy_of(4), seed=3, step=9)
    assert [alone[0], alone[1]] == [among[0], among[4]]


def test_seeds_of_finds_nothing_else(strategy_of) -> None:
    model = keras.Sequential(
        [
            keras.Input([4]),
            keras.layers.BatchNormalization(),
            keras.layers.GaussianNoise(1.0),
            keras.layers.Dropout(0.5),
        ]
    )
    seeds = randomness.seeds_of(model)
    assert len(seeds) == 2
    assert all(np.shape(seed) == (2,) for seed in seeds)
