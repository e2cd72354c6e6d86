import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples import generate_text
from model import ModelConfig
from model import transformer

LENGTH = 6
SPEC = tf.TensorSpec([None, LENGTH], tf.int32)
PROMPT = [104, 105]


@pytest.fixture
def model() -> keras.Model:
    config = ModelConfig(
        model_options=("layers=1", "width=8", "heads=2", "order=3")
    )
    model = transformer.build(config, (SPEC, SPEC, None), 256)
    # Larger than at first, so that no two logits are nearly equal.
    model.set_weights([5 * weights for weights in model.get_weights()])
    return model


def test_greedy_is_the_likeliest_token_step_by_step(
    model: keras.Model,
) -> None:
    tokens = list(PROMPT)
    for _ in range(2 * LENGTH):
        seen = tokens[-LENGTH:]
        # Whatever lies to the right must not matter.
        window = np.array([seen + [255] * (LENGTH - len(seen))], np.int32)
        tokens.append(int(np.argmax(model(window)[0, len(seen) - 1])))

    found = generate_text.generate(model, PROMPT, 2 * LENGTH)

    assert found == tokens[len(PROMPT) :]


def test_seed_fixes_what_is_drawn(model: keras.Model) -> None:
    first, again, other = (
        generate_text.generate(model, PROMPT, 20, temperature=1.0, seed=seed)
        for seed in (3, 3, 4)
    )
    assert first == again != other
    # Each token has a draw of its own.
    assert len(set(first)) > 5


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_as_likely_as_the_softmax_says(temperature: float) -> None:
    logits = tf.constant([0.0, 1.0, -1.0, 2.0, -20.0])
    count = 4000
    seeds = tf.stack([tf.zeros([count], tf.int32), tf.range(count)], axis=1)
    drawn = tf.vectorized_map(
        lambda seed: generate_text.pick(logits, temperature, seed), seeds
    )
    scaled = np.exp(logits.numpy().astype(np.float64) / temperature)
    wanted = scaled / scaled.sum()
    found = np.bincount(drawn, minlength=5) / count
    # Four standard deviations.
    most = 4 * np.sqrt(wanted * (1 - wanted) / count) + 1 / count
    assert (np.abs(found - wanted) < most).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_logits_may_have_any_precision(dtype: str) -> None:
    logits = tf.constant([0.0, 9.0, 1.0], dtype)
    assert generate_text.pick(logits, 0.5, [0, 0]) == 1


def test_compiles_once(model: keras.Model) -> None:
    next_token = generate_text.make_next_token(model)
    for filled, temperature in ((1, 0.0), (3, 0.5), (6, 1.0)):
        next_token([1] * LENGTH, filled, temperature, [0, filled])
    assert next_token.experimental_get_tracing_count() == 1


def _run(monkeypatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["generate_text", *words])
    generate_text.main()


def test_writes_on_from_a_prompt(
    model: keras.Model, tmp_path: pathlib.Path, monkeypatch, capsys
) -> None:
    (tmp_path / "export").mkdir()
    model.save(tmp_path / "export" / "model.keras")
    words = ("--temperature=0", "--count=9", "--prompt=hi")
    _run(monkeypatch, f"--model_dir={tmp_path}", *words)
    wanted = bytes(generate_text.generate(model, PROMPT, 9))
    printed = capsys.readouterr().out
    assert printed == "hi" + wanted.decode(errors="replace") + "\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model_dir=nowhere",), "train with --export=keras"),
        (("--prompt=",), "--prompt is empty"),
        (("--temperature=-1",), "--temperature must be 0 or more"),
        ((), "holds no model of bytes; train with --model=transformer"),
    ],
    ids=["no_export", "no_prompt", "cold", "other_model"],
)
def test_refuses_in_one_sentence(
    tmp_path: pathlib.Path, monkeypatch, capsys, words, message
) -> None:
    (tmp_path / "export").mkdir()
    inputs = keras.Input([4])
    other = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    other.save(tmp_path / "export" / "model.keras")
    with pytest.raises(SystemExit, match="2"):
        _run(monkeypatch, f"--model_dir={tmp_path}", *words)
    assert message in capsys.readouterr().err
