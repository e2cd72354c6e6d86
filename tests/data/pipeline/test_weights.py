"""Weights of a dataset's own, from the module to the numbers of a run."""

import dataclasses
import functools
import types
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import blame
from data.pipeline import distribute
from data.pipeline import prepare
from data.pipeline import weights as weights_lib
from errors import RequestError
from tests.data.pipeline import datasets
from tests.data.pipeline import layouts
from training import TrainConfig
from training import eval_step
from training import forward
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib
from training.predict import predict

CONFIG = DataConfig(dataset="mine", global_batch_size=8)
CONTEXT = tf.distribute.InputContext()
ONE_STEP = tf.constant(1, tf.int64)
REPLICAS = pytest.mark.parametrize("replicas", [1, 2, 4])
KINDS = pytest.mark.parametrize(
    "kind", ["arrays", "arrays_preprocess", "example", "source"]
)


def _weighted(
    kind: str, weights: list[float], num_eval: int = 1
) -> types.SimpleNamespace:
    """Makes a dataset whose example i has the weight `weights[i]`."""
    plain = datasets.make(kind, len(weights), num_eval)
    module = types.SimpleNamespace(**vars(plain))
    known = np.array(weights, np.float32)
    module.info = lambda config: dataclasses.replace(
        plain.info(config), has_weights=True
    )
    if "arrays" in kind:
        module.arrays = lambda config, split: (
            *plain.arrays(config, split),
            known[: plain.info(config).num_examples[split]],
        )
    if kind == "example":
        module.example = lambda config, split, index: (
            *plain.example(config, split, index),
            tf.gather(known, index),
        )
    if kind == "arrays_preprocess":
        module.preprocess = lambda config, split, element: (
            *plain.preprocess(config, split, element[:2]),
            element[2],
        )
    if kind == "source":

        def decode(config: DataConfig, split: str, element: Any) -> tuple:
            features, label = plain.preprocess(config, split, element)
            return features, label, tf.gather(known, label)

        module.preprocess = decode
    return module


def test_a_product_is_0_only_where_a_row_is_no_example() -> None:
    product = weights_lib.times(
        tf.constant([0.0, 0.0, 1.0, 1.0, 2.0]),
        tf.constant([0.0, 3.0, 0.0, 3.0, 0.5]),
    )

    assert product.numpy().tolist() == pytest.approx([0, 0, 0, 3, 1])
    assert (product.numpy() > 0).tolist() == [False, False, True, True, True]
    assert product[2] + 1e-30 == 1e-30


@KINDS
@pytest.mark.parametrize(("num_workers", "num_replicas"), [(1, 1), (2, 4)])
def test_every_example_has_its_weight(
    kind: str, num_workers: int, num_replicas: int
) -> None:
    weights = [0.25 * i for i in range(18)]
    module = _weighted(kind, weights, num_eval=18)

    train = layouts.global_batches(
        functools.partial(
            prepare.train_dataset, module, CONFIG, seed=5, step=1
        ),
        num_workers,
        num_replicas,
        3,
    )
    evaluation = layouts.global_batches(
        functools.partial(prepare.eval_dataset, module, CONFIG),
        num_workers,
        num_replicas,
        3,
    )

    for _, labels, received in train:
        np.testing.assert_allclose(received, abs(labels) / 4, atol=1e-37)
        assert (received > 0).all()
    received = np.concatenate([weights for _, _, weights in evaluation])
    np.testing.assert_allclose(received[:18], weights, atol=1e-37)
    assert (received > 0).tolist() == [True] * 18 + [False] * 6


def test_rejects_a_pair_where_info_promises_a_weight() -> None:
    module = _weighted("arrays", [1.0] * 8)
    module.arrays = datasets.make("arrays", 8).arrays

    with pytest.raises(RequestError, match=r"\(features, labels, weight\)"):
        prepare.train_dataset(module, CONFIG, CONTEXT, seed=0, step=0)


def test_rejects_weights_of_another_type() -> None:
    module = _weighted("arrays", [1.0] * 8)
    plain = module.arrays
    module.arrays = lambda *args: (*plain(*args)[:2], np.ones([8]))

    with pytest.raises(RequestError, match="weights of an example are float64"):
        prepare.train_dataset(module, CONFIG, CONTEXT, seed=0, step=0)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_rejects_arrays_with_a_bad_weight(bad: float) -> None:
    module = _weighted("arrays", [1.0, 1.0, bad, 1.0])

    with pytest.raises(RequestError, match=r"example 2 of split train is"):
        prepare.train_dataset(module, CONFIG, CONTEXT, seed=0, step=0)


@pytest.mark.parametrize("kind", ["arrays_preprocess", "example", "source"])
def test_a_bad_weight_is_a_bad_example(kind: str) -> None:
    module = _weighted(kind, [1.0, 1.0, -3.0, 1.0] * 2)
    skips = dataclasses.replace(CONFIG, skip_bad_examples=9)
    prepared = functools.partial(prepare.train_dataset, module, seed=0, step=0)

    with pytest.raises(tf.errors.InvalidArgumentError, match="0 or more"):
        next(iter(prepared(CONFIG, CONTEXT)))
    found = blame.find(module, CONFIG, CONTEXT, "train", steps=range(1))
    assert "a weight must be 0 or more" in found
    _, labels, weights = next(iter(prepared(skips, CONTEXT)))
    assert sorted(weights) == [0, 0, 1, 1, 1, 1, 1, 1]
    assert not {2, 6} & set(abs(labels.numpy()))


def _numbers() -> types.SimpleNamespace:
    """Rows 1, 2, 3, 4, of weight 0, 1, 2 and 0.5, and a model's w·x."""
    module = _weighted("arrays", [0.0, 1.0, 2.0, 0.5])
    module.info = lambda config: dataclasses.replace(
        datasets.make("arrays", 4, 4).info(config),
        features=tf.TensorSpec([1], tf.float32),
        has_weights=True,
    )
    module.arrays = lambda config, split: (
        np.array([[1], [2], [3], [4]], np.float32),
        np.arange(4),
        np.array([0, 1, 2, 0.5], np.float32),
    )
    return module


def _product(initial: float) -> keras.Model:
    inputs = keras.Input([1])
    layer = keras.layers.Dense(
        1,
        use_bias=False,
        kernel_initializer=keras.initializers.Constant(initial),
        name="dense",
    )
    return keras.Model(inputs, layer(inputs))


TASK = task_lib.Task(lambda labels, outputs: -outputs[:, 0], lambda: [])


@REPLICAS
def test_a_step_takes_the_weighted_sum_over_the_global_batch(
    strategy_of, replicas
) -> None:
    """w=0, loss -w·x: the gradient is -(1·2 + 2·3 + 0.5·4) / 4 = -2.5."""
    strategy, config = strategy_of(replicas), DataConfig(global_batch_size=4)
    with strategy.scope():
        train = TrainConfig(optimizer="sgd", learning_rate=1.0)
        state = state_lib.create(_product(0.0), train)
    batches = distribute.train_dataset(
        strategy, _numbers(), config, seed=0, step=0
    )
    loop = step_lib.make_train_loop(
        strategy, state, TASK, 4, train, count_skipped=True
    )

    results = loop(iter(batches), ONE_STEP)

    assert state.model.get_weights()[0].item() == pytest.approx(2.5)
    # The example of weight 0 is none that could not be read.
    assert results["skipped_examples"] == 0


@REPLICAS
@pytest.mark.parametrize("size", [4, 8], ids=["full", "padded"])
def test_an_evaluation_takes_the_weighted_mean_and_counts_all(
    strategy_of, replicas, size
) -> None:
    """w=1: the mean of x is (1·2 + 2·3 + 0.5·4) / 3.5."""
    strategy, config = strategy_of(replicas), DataConfig(global_batch_size=size)
    with strategy.scope():
        model = _product(1.0)
    batches = distribute.eval_dataset(strategy, _numbers(), config)
    loop = eval_step.make_eval_loop(strategy, model, TASK)

    results = loop(iter(batches), ONE_STEP)
    outputs = predict(strategy, model, batches, 1)

    assert results["loss"].numpy() == pytest.approx(-10 / 3.5)
    assert results["examples"] == 4
    np.testing.assert_array_equal(outputs, [[1], [2], [3], [4]])


def _targets(kind: str, bad: float) -> types.SimpleNamespace:
    """Rows 1, 1, 1, 1 with the targets 1, 2, 3 and `bad`, of weight 0."""
    spec = tf.TensorSpec([1], tf.float32)
    module = types.SimpleNamespace(
        info=lambda config: DatasetInfo(
            task="regression",
            num_examples={"train": 4, "eval": 4},
            features=spec,
            labels=spec,
            has_weights=True,
        ),
        arrays=lambda config, split: (
            np.ones([4, 1], np.float32),
            np.array([[1], [2], [3], [bad]], np.float32),
            np.array([1, 1, 1, 0], np.float32),
        ),
    )
    if kind == "preprocess":
        module.preprocess = lambda config, split, element: element
    return module


@pytest.mark.parametrize("kind", ["arrays", "preprocess"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e18])
def test_a_target_of_weight_0_may_be_anything(strategy_of, kind, bad) -> None:
    """w=0, loss (w - y)²: the gradient is -2(1 + 2 + 3) / 4 = -3."""
    strategy, config = strategy_of(1), DataConfig(global_batch_size=4)
    module = _targets(kind, bad)
    task = task_lib.resolve(types.SimpleNamespace(), "regression")
    error = keras.metrics.MeanSquaredError
    task = task._replace(
        make_metrics=lambda: [error(name="error", dtype="float64")]
    )
    with strategy.scope():
        train = TrainConfig(optimizer="sgd", learning_rate=1.0)
        state = state_lib.create(_product(0.0), train)
    evaluation = distribute.eval_dataset(strategy, module, config)
    evaluate = eval_step.make_eval_loop(strategy, state.model, task)
    batches = distribute.train_dataset(strategy, module, config, seed=0, step=0)
    loop = step_lib.make_train_loop(
        strategy, state, task, 4, train, count_skipped=True
    )

    before = evaluate(iter(evaluation), ONE_STEP)
    results = loop(iter(batches), ONE_STEP)
    outputs = predict(strategy, state.model, evaluation, 1)

    assert float(before["loss"]) == pytest.approx(14 / 3)
    assert float(before["error"]) == pytest.approx(14 / 3)
    assert before["examples"] == 4
    assert results["loss"] == 14 / 4
    assert float(results["error"]) == pytest.approx(14 / 3)
    assert results["skipped_examples"] == 0
    np.testing.assert_array_equal(outputs, [[3]] * 4)


def test_a_target_that_counts_stays_no_number() -> None:
    targets, own = tf.constant([[np.nan], [np.inf]]), tf.constant([1.0, 0.0])

    _, labels, _ = weights_lib.join((targets, targets, own), tf.ones([2]))

    np.testing.assert_array_equal(labels, [[np.nan], [0]])


def test_nothing_is_left_of_weight_0() -> None:
    smallest = weights_lib.SMALLEST
    weights = np.array([0, smallest, 1e-30, 0.1, 1, 3e38], np.float32)

    received = forward.counting(tf.constant(weights))

    np.testing.assert_array_equal(received, [0, 0, *weights[2:]])
