"""The arithmetic of the step, on 1, 2 and 4 replicas."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from training import TrainConfig
from training import eval_step
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib

REPLICAS = pytest.mark.parametrize("replicas", [1, 2, 4])
ONE_STEP = tf.constant(1, tf.int64)


def _task(per_example_loss, metrics=lambda: []) -> task_lib.Task:
    return task_lib.Task(per_example_loss, metrics)


def _one_weight(initial: float, penalty: float = 0.0) -> keras.Model:
    """A model of a single weight w, which returns w·x."""
    inputs = keras.Input([1])
    outputs = keras.layers.Dense(
        1,
        use_bias=False,
        kernel_initializer=keras.initializers.Constant(initial),
        kernel_regularizer=keras.regularizers.L2(penalty),
        name="dense",
    )(inputs)
    return keras.Model(inputs, outputs)


def _iterator(strategy, features, labels, weights=None, batch=None):
    if weights is None:
        weights = np.ones(len(features), np.float32)
    arrays = (np.float32(features), np.float32(labels), np.float32(weights))
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    dataset = dataset.batch(batch or len(features), drop_remainder=True)
    return iter(strategy.experimental_distribute_dataset(dataset.repeat()))


def _state(strategy, build, **config) -> state_lib.TrainState:
    config = {"optimizer": "sgd", "learning_rate": 1.0, **config}
    with strategy.scope():
        return state_lib.create(build(), TrainConfig(**config))


@REPLICAS
def test_loss_is_averaged_over_the_global_batch(strategy_of, replicas) -> None:
    """w=0, loss -w·v for v=1..4: the gradient is -2.5 on any number."""
    strategy = strategy_of(replicas)
    state = _state(strategy, lambda: _one_weight(0.0))
    task = _task(lambda labels, outputs: -outputs[:, 0])
    loop = step_lib.make_train_loop(strategy, state, task, 4, TrainConfig())
    values = [[1], [2], [3], [4]]
    results = loop(_iterator(strategy, values, values), ONE_STEP)
    assert state.model.get_weights()[0].item() == pytest.approx(2.5)
    assert results["loss"].numpy() == pytest.approx(0.0)
    assert state.step.numpy() == 1


@REPLICAS
def test_penalties_count_once(strategy_of, replicas) -> None:
    """w=1, penalty w²/2, no data: one step of rate 1 leads to 0."""
    strategy = strategy_of(replicas)
    state = _state(strategy, lambda: _one_weight(1.0, penalty=0.5))
    task = _task(lambda labels, outputs: outputs[:, 0])
    loop = step_lib.make_train_loop(strategy, state, task, 4, TrainConfig())
    zeros = np.zeros([4, 1])
    results = loop(_iterator(strategy, zeros, zeros), ONE_STEP)
    assert state.model.get_weights()[0].item() == pytest.approx(0.0)
    assert results["loss"].numpy() == pytest.approx(0.5)


GOLDEN = {
    "adam": [3.58139, 1.57163, 1.78756, 0.61830],
    "sgd": [3.58139, 0.63695, 0.64192, 0.08728],
}


@REPLICAS
@pytest.mark.parametrize("optimizer", GOLDEN)
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "jit"])
def test_golden_losses(strategy_of, replicas, optimizer, jit_compile) -> None:
    """Two epochs of two batches; Adam's slots are built beforehand."""
    strategy = strategy_of(replicas)

    def build() -> keras.Model:
        inputs = keras.Input([3])
        layer = keras.layers.Dense(1, kernel_initializer="zeros", name="dense")
        return keras.Model(inputs, layer(inputs))

    state = _state(strategy, build, optimizer=optimizer, learning_rate=0.1)
    features = np.random.RandomState(0).rand(16, 3).astype(np.float32)
    labels = features.sum(axis=1, keepdims=True)
    task = task_lib.resolve(types.ModuleType("none"), "regression")
    loop = step_lib.make_train_loop(
        strategy, state, task, 8, TrainConfig(jit_compile=jit_compile)
    )
    iterator = _iterator(strategy, features, labels, batch=8)
    losses = [loop(iterator, ONE_STEP)["loss"].numpy() for _ in range(4)]
    np.testing.assert_allclose(losses, GOLDEN[optimizer], atol=1e-5)
    assert loop.experimental_get_tracing_count() == 1


@REPLICAS
def test_replicas_hold_equal_weights(strategy_of, replicas) -> None:
    strategy = strategy_of(replicas)
    state = _state(strategy, lambda: _one_weight(0.3), optimizer="adam")
    task = task_lib.resolve(types.ModuleType("none"), "regression")
    loop = step_lib.make_train_loop(strategy, state, task, 8, TrainConfig())
    values = np.random.RandomState(1).rand(8, 1)
    loop(_iterator(strategy, values, 2 * values), tf.constant(3, tf.int64))
    for variable in state.model.trainable_variables:
        copies = strategy.experimental_local_results(variable.value)
        assert len(copies) == replicas
        assert len({copy.numpy().tobytes() for copy in copies}) == 1


@REPLICAS
@pytest.mark.parametrize("batch", [1, 4, 8], ids="batch{}".format)
def test_evaluation_counts_each_example_once(
    strategy_of, replicas, batch
) -> None:
    """The mean of 1..9 is 5, whatever the batch; padded rows hold NaN."""
    strategy = strategy_of(replicas)
    with strategy.scope():
        model = _one_weight(1.0)
    batch *= replicas
    steps = -(-9 // batch)
    rows = np.full([steps * batch, 1], np.nan)
    rows[:9, 0] = range(1, 10)
    weights = np.isfinite(rows[:, 0])
    task = _task(
        lambda labels, outputs: outputs[:, 0],
    )
    loop = eval_step.make_eval_loop(strategy, model, task)
    iterator = _iterator(strategy, rows, rows, weights, batch)
    results = loop(iterator, tf.constant(steps, tf.int64))
    assert results["loss"].numpy() == pytest.approx(5.0)
    assert results["examples"].numpy() == 9


@REPLICAS
@pytest.mark.parametrize("examples", [1, 3, 8, 9, 17])
def test_no_nan_for_any_number_of_examples(
    strategy_of, replicas, examples
) -> None:
    """As `data.pipeline` pads: whole batches, rows of weight 0 at the end."""
    strategy = strategy_of(replicas)
    state = _state(strategy, lambda: _one_weight(0.5), learning_rate=1e-3)
    task = task_lib.resolve(types.ModuleType("none"), "regression")
    loop = step_lib.make_train_loop(strategy, state, task, 8, TrainConfig())
    steps = -(-examples // 8)
    rows = np.zeros([steps * 8, 1])
    weights = np.arange(steps * 8) < examples
    iterator = _iterator(strategy, rows, rows + 1, weights, 8)
    for _ in range(steps):
        assert np.isfinite(loop(iterator, ONE_STEP)["loss"].numpy())


@REPLICAS
def test_metrics_cover_all_replicas_and_the_last_loop_only(
    strategy_of, replicas
) -> None:
    strategy = strategy_of(replicas)
    state = _state(strategy, lambda: _one_weight(1.0), learning_rate=0.0)
    task = _task(
        lambda labels, outputs: outputs[:, 0],
        lambda: [keras.metrics.MeanAbsoluteError(name="x")],
    )
    loop = step_lib.make_train_loop(strategy, state, task, 4, TrainConfig())
    rows = [[1], [2], [3], [4], [5], [6], [7], [8]]
    iterator = _iterator(strategy, rows, np.zeros([8, 1]), batch=4)
    assert loop(iterator, ONE_STEP)["x"].numpy() == pytest.approx(2.5)
    assert loop(iterator, ONE_STEP)["x"].numpy() == pytest.approx(6.5)


def test_a_loss_that_has_averaged_is_refused(strategy_of) -> None:
    strategy = strategy_of(1)
    state = _state(strategy, lambda: _one_weight(1.0))
    task = _task(lambda labels, outputs: tf.reduce_mean(outputs))
    loop = step_lib.make_train_loop(strategy, state, task, 4, TrainConfig())
    rows = np.ones([4, 1])
    with pytest.raises(RequestError, match="one loss per example"):
        loop(_iterator(strategy, rows, rows), ONE_STEP)


@pytest.mark.parametrize("replicas", [1, 2])
def test_micro_batches_must_divide_a_replicas_share(
    strategy_of, replicas
) -> None:
    strategy = strategy_of(replicas)
    state = _state(strategy, lambda: _one_weight(1.0))
    task = _task(lambda labels, outputs: outputs[:, 0])
    config = TrainConfig(gradient_accumulation_steps=3)
    message = f"--gradient_accumulation_steps=3: .* the {8 // replicas} "
    with pytest.raises(RequestError, match=message):
        step_lib.make_train_loop(strategy, state, task, 8, config)


def _train(
    strategy, state, features, labels, steps=1, **config
) -> dict[str, float]:
    """Trains on one global batch of squared errors."""
    task = task_lib.resolve(types.ModuleType("none"), "regression")
    loop = step_lib.make_train_loop(
        strategy, state, task, len(features), TrainConfig(**config)
    )
    results = loop(
        _iterator(strategy, features, labels), tf.constant(steps, tf.int64)
    )
    return {name: value.numpy() for name, value in results.items()}


@REPLICAS
def test_clipping_sees_the_gradient_of_the_global_batch(
    strategy_of, replicas
) -> None:
    """Rate 1, norm 0.5: the update has norm 0.5 on any number of replicas."""
    strategy = strategy_of(replicas)
    state = _state(strategy, lambda: _one_weight(0.0))
    rows = np.array([[1], [2], [3], [4]])
    _train(strategy, state, rows, -7 * rows, global_clipnorm=0.5)
    weight = state.model.get_weights()[0].item()
    assert weight == pytest.approx(-0.5, rel=1e-6)


@REPLICAS
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "jit"])
def test_micro_batches_are_one_step_on_the_joined_batch(
    strategy_of, replicas, jit_compile
) -> None:
    """w=1, mean gradient 2.5 in each of two micro-batches: w=-1.5."""
    strategy = strategy_of(replicas)
    state = _state(strategy, lambda: _one_weight(1.0))
    task = _task(
        lambda labels, outputs: outputs[:, 0],
        lambda: [keras.metrics.MeanAbsoluteError(name="x")],
    )
    config = TrainConfig(gradient_accumulation_steps=2, jit_compile=jit_compile)
    loop = step_lib.make_train_loop(strategy, state, task, 8, config)
    rows = [[1], [2], [3], [4], [4], [3], [2], [1]]
    results = loop(_iterator(strategy, rows, np.zeros([8, 1])), ONE_STEP)
    weight = state.model.get_weights()[0].item()
    assert weight == pytest.approx(-1.5, rel=1e-6)
    assert results["loss"].numpy() == pytest.approx(2.5)
    assert results["x"].numpy() == pytest.approx(2.5)
    assert state.optimizer.iterations.numpy() == 1


def _normalized(synchronized: bool = False) -> keras.Model:
    inputs = keras.Input([1])
    x = keras.layers.BatchNormalization(
        momentum=0.5, synchronized=synchronized, name="norm"
    )(inputs)
    return keras.Model(inputs, keras.layers.Dense(1, name="dense")(x))


@pytest.mark.parametrize("replicas", [2, 4])
def test_statistics_are_the_mean_of_all_replicas(strategy_of, replicas) -> None:
    strategy = strategy_of(replicas)
    state = _state(strategy, _normalized, learning_rate=0.0)
    rows = np.arange(8.0)[:, None]
    _train(strategy, state, rows, rows)
    mean = state.model.get_layer("norm").moving_mean
    copies = [
        copy.numpy().item()
        for copy in strategy.experimental_local_results(mean.value)
    ]
    assert copies == [pytest.approx(0.5 * rows.mean())] * replicas
    assert len(set(copies)) == 1


@REPLICAS
@pytest.mark.parametrize("synchronized", [False, True], ids=["own", "synced"])
def test_an_overflow_anywhere_skips_the_step_everywhere(
    strategy_of, replicas, synchronized
) -> None:
    """The last row overflows float16; the last replica alone sees it."""
    keras.config.set_dtype_policy("mixed_float16")
    strategy = strategy_of(replicas)
    state = _state(
        strategy,
        lambda: _normalized(synchronized),
        optimizer="adam",
        ema_momentum=0.5,
    )
    rows = np.ones([8, 1])
    rows[-1] = 1e30
    labels = np.ones([8, 1])
    before = _copies(strategy, state)
    _train(strategy, state, rows, labels, steps=3, ema_momentum=0.5)
    after = _copies(strategy, state)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {
        "step",
        "loss_scale/scale",
        "loss_scale/skipped",
        "loss_scale/streak",
    }
    assert state.step.numpy() == 3
    assert state.loss_scale.logs() == {
        "loss_scale": 2.0**12,
        "skipped_steps": 3,
    }
    rows[-1] = 1.0
    _train(strategy, state, rows, labels, ema_momentum=0.5)
    assert state.optimizer.iterations.numpy() == 1
    assert state.loss_scale.streak.numpy() == 0


def _copies(strategy, state) -> dict[str, list[bytes]]:
    return {
        name: [
            copy.numpy().tobytes()
            for copy in strategy.experimental_local_results(variable)
        ]
        for name, variable in state.variables().items()
    }


@REPLICAS
def test_a_loss_of_nothing_is_not_a_number(strategy_of, replicas) -> None:
    """A skipped step whose loss overflowed has no loss, rather than 0."""
    keras.config.set_dtype_policy("mixed_float16")
    strategy = strategy_of(replicas)
    state = _state(strategy, lambda: _one_weight(1.0))
    rows = np.ones([4, 1])
    rows[-1] = 1e30  # on the last replica alone
    results = _train(strategy, state, rows, np.zeros([4, 1]))
    assert np.isnan(results["loss"])
    assert state.loss_scale.is_skipping(1)


@REPLICAS
def test_sparse_gradients_take_the_same_way(strategy_of, replicas) -> None:
    """Rows of an embedding that two examples share get both gradients."""

    def build() -> keras.Model:
        inputs = keras.Input([1])
        layer = keras.layers.Embedding(
            3, 1, embeddings_initializer="zeros", name="table"
        )
        return keras.Model(inputs, keras.layers.Flatten()(layer(inputs)))

    strategy = strategy_of(replicas)
    state = _state(strategy, build)
    tokens = np.array([[0], [2], [0], [0]])
    labels = np.array([[1.0], [2.0], [3.0], [4.0]])
    _train(strategy, state, tokens, labels, global_clipnorm=100.0)
    # The gradient of (0 - y)² is -2y, averaged over four examples.
    np.testing.assert_allclose(
        state.model.get_weights()[0], [[4.0], [0.0], [1.0]], rtol=1e-6
    )


@REPLICAS
def test_top_k_counts_examples_not_batches(strategy_of, replicas) -> None:
    """Seven of eight real rows are right; padded ones do not count."""
    strategy = strategy_of(replicas)
    with strategy.scope():
        inputs = keras.Input([4])
        model = keras.Model(inputs, keras.layers.Rescaling(1.0)(inputs))
    logits = np.tile([4.0, 3.0, 2.0, 1.0], [12, 1])
    labels = np.array([0, 1, 0, 1, 1, 0, 3, 1, 3, 3, 3, 3])
    weights = np.arange(12) < 8
    task = _task(
        lambda labels, outputs: outputs[:, 0],
        lambda: [keras.metrics.SparseTopKCategoricalAccuracy(2, name="top")],
    )
    loop = eval_step.make_eval_loop(strategy, model, task)
    iterator = _iterator(strategy, logits, labels, weights, batch=4)
    results = loop(iterator, tf.constant(3, tf.int64))
    assert results["top"].numpy() == pytest.approx(7 / 8)
