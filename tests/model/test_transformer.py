import json
import math
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import train
from data import DataConfig
from errors import RequestError
from flags.command_line import Configs
from model import ModelConfig
from model import transformer
from strategies import StrategyConfig
from tests import processes
from training import RunConfig
from training import TrainConfig

LENGTH, TOKENS = 12, 11
TOKEN_SPEC = tf.TensorSpec([None, LENGTH], tf.int32)
SMALL = {"layers": 2, "width": 16, "heads": 2}


def build(**settings: float) -> keras.Model:
    words = [f"{key}={value}" for key, value in {**SMALL, **settings}.items()]
    config = ModelConfig(model="transformer", model_options=tuple(words))
    return transformer.build(config, (TOKEN_SPEC, TOKEN_SPEC, None), TOKENS)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    tokens = np.random.default_rng(seed).integers(TOKENS, size=shape)
    return tokens.astype(np.int32)


@pytest.fixture
def judged() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, logits, and by float64 the nats of each token `[B, T]`."""
    logits = np.random.default_rng(1).normal(size=[5, LENGTH, TOKENS], scale=3)
    logits = logits.astype(np.float32)
    labels = draw(5, LENGTH, seed=2)
    wide = logits.astype(np.float64)
    total = np.log(np.exp(wide).sum(axis=-1))
    chosen = np.take_along_axis(wide, labels[..., None], axis=-1)[..., 0]
    return labels, logits, total - chosen


@pytest.mark.parametrize("order", [1, 4])
def test_no_token_is_seen_before_its_time(order: int) -> None:
    model = build(order=order)
    tokens = draw(1, LENGTH)
    # Row t differs from `tokens` at t alone.
    changed = np.repeat(tokens, LENGTH, axis=0)
    every = np.arange(LENGTH)
    changed[every, every] = (changed[every, every] + 1) % TOKENS

    logits, others = model(tokens)[0].numpy(), model(changed).numpy()

    for t in every:
        np.testing.assert_allclose(others[t, :t], logits[:t], atol=1e-5)
        # It is seen from then on, to the end.
        moved = np.abs(others[t, t:] - logits[t:]).max(axis=-1)
        assert moved.min() > 1e-4


def test_order_of_what_came_before_matters() -> None:
    tokens = np.arange(LENGTH, dtype=np.int32)[None] % TOKENS
    swapped = tokens.copy()
    swapped[0, [2, 7]] = swapped[0, [7, 2]]
    model = build()
    difference = model(tokens)[0, -1] - model(swapped)[0, -1]
    assert np.abs(difference).max() > 1e-4


def test_loss_is_the_mean_over_the_window_in_nats(judged) -> None:
    labels, logits, nats = judged
    loss = transformer.per_example_loss(labels, tf.constant(logits))
    assert loss.shape == (5,)
    np.testing.assert_allclose(loss, nats.mean(axis=1), rtol=1e-5)


def test_metrics_weigh_whole_windows(judged) -> None:
    labels, logits, nats = judged
    weights = np.array([1.0, 0.0, 2.0, 1.0, 0.5], np.float32)
    bits, accuracy = transformer.make_metrics()
    # In two parts, as from two batches.
    for part in (slice(0, 2), slice(2, 5)):
        for metric in (bits, accuracy):
            metric.update_state(
                labels[part], logits[part], sample_weight=weights[part]
            )
    wanted = np.average(nats.mean(axis=1), weights=weights) / math.log(2)
    np.testing.assert_allclose(bits.result(), wanted, rtol=1e-5)
    right = (logits.argmax(axis=-1) == labels).mean(axis=1)
    np.testing.assert_allclose(
        accuracy.result(), np.average(right, weights=weights), rtol=1e-5
    )
    assert [bits.name, accuracy.name] == ["bits_per_byte", "accuracy"]


def test_equal_logits_are_worth_the_logarithm_of_their_number() -> None:
    bits, _ = transformer.make_metrics()
    bits.update_state(draw(3, 4), np.zeros([3, 4, 256], np.float32))
    np.testing.assert_allclose(bits.result(), 8.0, rtol=1e-6)


def test_dropout_is_for_training_only() -> None:
    model, tokens = build(dropout=0.5), draw(1, LENGTH)
    again = model(tokens, training=False)
    np.testing.assert_array_equal(model(tokens, training=False), again)
    assert np.abs(model(tokens, training=True) - again).max() > 1e-2


def test_learns_what_only_attention_can_tell() -> None:
    """The second half of each window repeats the first, of random tokens."""
    model = build(layers=1, order=2)
    optimizer = keras.optimizers.Adam(3e-3)
    optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step(tokens: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(tokens[:, :-1], training=True)
            loss = tf.reduce_mean(
                transformer.per_example_loss(tokens[:, 1:], logits)
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )
        return loss

    def repeated(seed: int) -> tf.Tensor:
        half = draw(64, 1 + LENGTH // 2, seed=seed)
        return tf.constant(np.tile(half, 2)[:, : LENGTH + 1])

    for seed in range(200):
        step(repeated(seed))
    tokens = repeated(999).numpy()
    guess = np.argmax(model(tokens[:, :-1]), axis=-1)
    known = slice(1 + LENGTH // 2, LENGTH)
    assert (guess == tokens[:, 1:])[:, known].mean() > 0.5


def test_computes_logits_in_full_precision() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = build()
    assert model.output.dtype == "float32"
    assert model.get_layer("attention_0").compute_dtype == "bfloat16"


def test_xla_computes_the_same() -> None:
    model = build()
    tokens = tf.constant(draw(2, LENGTH))
    compiled = tf.function(model, jit_compile=True, autograph=False)
    np.testing.assert_allclose(compiled(tokens), model(tokens), atol=1e-4)


def test_layers_have_names_of_their_own() -> None:
    paths = [
        [variable.path for variable in build().trainable_variables]
        for _ in range(2)
    ]
    assert paths[0] == paths[1]
    assert len(set(paths[0])) == len(paths[0])


def test_parameters_are_as_many_as_by_hand() -> None:
    width, order, layers = 16, 4, 2
    attention = 4 * width * width
    feed_forward = 2 * 4 * width * width + 5 * width
    by_hand = (
        TOKENS * width
        + order * width * width
        + width
        + layers * (attention + feed_forward + 4 * width)
        + 2 * width
        + width * TOKENS
        + TOKENS
    )
    assert build().count_params() == by_hand


@pytest.mark.parametrize(
    "word",
    ["layers=0", "width=0", "heads=0", "order=0", "heads=3", "dropout=1"],
)
def test_rejects_options(word: str) -> None:
    with pytest.raises(RequestError, match=word):
        transformer.build(
            ModelConfig(model="transformer", model_options=(word,)),
            (TOKEN_SPEC, TOKEN_SPEC, None),
            TOKENS,
        )


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (tf.TensorSpec([None, 12], tf.float32), TOKEN_SPEC),
        (TOKEN_SPEC, tf.TensorSpec([None], tf.int32)),
        (TOKEN_SPEC, tf.TensorSpec([None, 11], tf.int32)),
        (tf.TensorSpec([None, 8, 8, 1], tf.int32), TOKEN_SPEC),
        ({"tokens": TOKEN_SPEC}, TOKEN_SPEC),
    ],
    ids=["floats", "one_label", "fewer_labels", "image", "dict"],
)
def test_refuses_what_are_no_tokens(features: object, labels: object) -> None:
    config = ModelConfig(model="transformer")
    with pytest.raises(RequestError, match="use --dataset=text"):
        transformer.build(config, (features, labels, None), TOKENS)


def test_two_replicas_compute_what_one_does(tmp_path: pathlib.Path) -> None:
    (tmp_path / "text").write_bytes(bytes(range(32, 96)) * 20)

    def run(strategy: StrategyConfig, name: str) -> dict[str, float]:
        return train.run(
            Configs(
                RunConfig(model_dir=str(tmp_path / name)),
                strategy,
                DataConfig(
                    dataset=f"text:{tmp_path}/text,length=8",
                    global_batch_size=4,
                ),
                ModelConfig(
                    model="transformer",
                    model_options=("layers=1", "width=8", "heads=2"),
                ),
                TrainConfig(train_steps=4, steps_per_loop=4, callbacks=()),
            )
        )

    one = run(StrategyConfig(), "one")
    devices = ("cpu:0", "cpu:1")
    two = run(StrategyConfig(strategy="mirrored", devices=devices), "two")

    assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
    assert one["accuracy"] == pytest.approx(two["accuracy"])
    # Every window is whole, so that the two are one number.
    bits = one["loss"] / math.log(2)
    assert one["bits_per_byte"] == pytest.approx(bits, rel=1e-5)
    assert two["bits_per_byte"] == pytest.approx(bits, rel=1e-5)


@pytest.mark.slow
def test_learns_as_its_docstring_says(tmp_path: pathlib.Path) -> None:
    """With a fifth of the steps; all of them take minutes."""
    command = re.search(r"python train.py ((?:.+\\\n)+.+)", transformer.__doc__)
    words = command[1].replace("\\\n", " ").split()
    less = ("--train_steps=400", f"--model_dir={tmp_path}")
    done = processes.finish(processes.start(*words, *less), deadline=900)
    assert done.returncode == 0, done.stderr
    last = (tmp_path / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["split"] == "eval"
    assert json.loads(last)["bits_per_byte"] < 3.0
