import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from training import TrainConfig
from training import optimizer as optimizer_lib


def _create(step: int = 0, **config) -> keras.Optimizer:
    variable = tf.Variable(step, dtype=tf.int64)
    return optimizer_lib.create(TrainConfig(**config), variable)


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("sgd", keras.optimizers.SGD),
        ("adam", keras.optimizers.Adam),
        ("adamw", keras.optimizers.AdamW),
        ("keras.optimizers.Lion", keras.optimizers.Lion),
    ],
)
def test_finds_the_class(name, cls) -> None:
    optimizer = _create(optimizer=name, learning_rate=0.25)
    assert type(optimizer) is cls
    assert optimizer_lib.learning_rate(optimizer) == 0.25


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("sgd", 0.1),
        ("adam", 1e-3),
        ("adamw", 1e-3),
        ("keras.optimizers.Adadelta", 1e-3),
        ("keras.optimizers.Ftrl", 1e-3),
        ("keras.optimizers.SGD", 0.01),
    ],
)
def test_default_learning_rate_is_the_optimizers(name, rate) -> None:
    received = optimizer_lib.learning_rate(_create(optimizer=name))
    assert received == pytest.approx(rate)


def test_reads_options() -> None:
    optimizer = _create(
        optimizer="sgd", optimizer_options=("momentum=0.9", "nesterov=true")
    )
    assert optimizer.momentum == 0.9
    assert optimizer.nesterov is True


def test_weight_decay_is_the_optimizers_own_unless_given() -> None:
    assert _create(optimizer="adamw").weight_decay == 0.004
    assert _create(optimizer="adamw", weight_decay=0.1).weight_decay == 0.1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"optimizer": "keras.optimizers.None_"}, "no Keras optimizer"),
        ({"optimizer": "keras.layers.Dense"}, "no Keras optimizer"),
        ({"optimizer": "no_such.Thing"}, "no module 'no_such'"),
        ({"optimizer": ".Thing"}, "no Keras optimizer"),
        ({"optimizer_options": ("mometum=1",)}, "unknown key 'mometum'.*beta"),
        ({"optimizer_options": ("momentum",)}, "not key=value"),
        ({"optimizer_options": ("beta_1=1", "beta_1=2")}, "given twice"),
        ({"optimizer_options": ("learning_rate=1",)}, "--learning_rate"),
        ({"optimizer_options": ("weight_decay=1",)}, "--weight_decay"),
        ({"optimizer_options": ("clipnorm=1",)}, "see --global_clipnorm"),
        ({"optimizer_options": ("use_ema=true",)}, "see --ema_momentum"),
        (
            {"optimizer": "sgd", "optimizer_options": ("momentum=7",)},
            "optimizer_options=momentum=7.*refuses",
        ),
    ],
)
def test_refuses(config, message) -> None:
    with pytest.raises(RequestError, match=message):
        _create(**config)


@pytest.mark.parametrize("step", [0, 5, 9, 10, 35, 60, 109, 110, 500])
def test_cosine_follows_the_formula_at_the_step(step) -> None:
    optimizer = _create(
        step,
        learning_rate=0.5,
        learning_rate_schedule="cosine:warmup_steps=10",
        train_steps=110,
    )
    if step < 10:
        expected = 0.5 * (step + 1) / 10
    else:
        done = min((step - 10) / 100, 1)
        expected = 0.5 * (1 + np.cos(np.pi * done)) / 2
    rate = optimizer_lib.learning_rate(optimizer)
    assert rate == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [
        ("constant:warmup_steps=10", 4, 0.25),
        ("constant:warmup_steps=10", 10, 0.5),
        ("constant:warmup_steps=10", 99, 0.5),
        ("piecewise:boundaries=20x40,factor=0.5", 19, 0.5),
        ("piecewise:boundaries=20x40,factor=0.5", 20, 0.25),
        ("piecewise:boundaries=20x40,factor=0.5", 99, 0.125),
        ("piecewise:warmup_steps=10,boundaries=20", 4, 0.25),
        ("piecewise:warmup_steps=10,boundaries=20", 20, 0.05),
    ],
)
def test_other_schedules(schedule, step, expected) -> None:
    optimizer = _create(
        step,
        learning_rate=0.5,
        learning_rate_schedule=schedule,
        train_steps=100,
    )
    assert optimizer_lib.learning_rate(optimizer) == pytest.approx(expected)


def test_the_second_sum_is_left_out() -> None:
    """Keras's own sum over replicas would multiply by their number.

    `_all_reduce_sum_gradients` is not public: if this fails, Keras has
    changed and `optimizer.create` must follow.
    """
    assert "_all_reduce_sum_gradients" in vars(
        keras.src.backend.tensorflow.optimizer.TFOptimizer
    )
    pairs = (("gradient", "variable"),)
    assert _create()._all_reduce_sum_gradients(pairs) == list(pairs)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("constant:boundaries=3", "belong to piecewise"),
        ("piecewise", "belong to piecewise, which needs them"),
        ("piecewise:boundaries=5x3", "must rise"),
        ("piecewise:boundaries=5,factor=0", "factor must be above 0"),
        ("cosine:warmup=3", "unknown key 'warmup'; allowed: .*warmup_steps"),
        ("cosine:warmup_steps=x", "warmup_steps=x is not an integer"),
        ("cosine:warmup_steps=100", "less than --train_steps=100"),
        ("cosine:warmup_steps=-1", "from 0"),
    ],
)
def test_refuses_a_schedule(schedule, message) -> None:
    with pytest.raises(RequestError, match=message):
        _create(learning_rate_schedule=schedule, train_steps=100)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_rate_is_a_number_on_several_replicas(
    strategy_of, replicas
) -> None:
    with strategy_of(replicas).scope():
        step = tf.Variable(0, dtype=tf.int64)
        optimizer = optimizer_lib.create(TrainConfig(learning_rate=0.5), step)
    assert optimizer_lib.learning_rate(optimizer) == 0.5
