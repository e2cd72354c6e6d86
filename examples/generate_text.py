r"""How does a trained `transformer` write on from a prompt?

    python train.py --model=transformer --dataset=text --export=keras \
        --model_dir=runs/text
    python -m examples.generate_text --model_dir=runs/text --prompt="Return "

The export holds layers of Keras only, so that loading it takes nothing else of
this repository. A window of the `T` tokens that the model was trained on is
filled from the left; once full, it loses its first token for each new one. It
never changes its shape, so one compiled function makes every token; what lies
to the right of the last one is not seen, as the model is causal.

Shapes: `T` tokens of a window, `V` different tokens (256 for bytes).
"""

import argparse
import pathlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import TypeAlias

import keras
import tensorflow as tf

# (window [T], tokens in it [], temperature [], seed [2]) → next token [].
NextToken: TypeAlias = Callable[..., tf.Tensor]


def make_next_token(model: keras.Model) -> NextToken:
    """Compiles one step of generation.

    Args:
        model: From tokens `[B, T]` to logits `[B, T, V]`, causal.

    Returns:
        A function of a window, int32 `[T]`, the number of tokens in it, from
        1 to `T`, int32 `[]`, the temperature, float32 `[]`, and a seed, int32
        `[2]`; it returns a token, int32 `[]`.
    """
    window = tf.TensorSpec(model.inputs[0].shape[1:], tf.int32)
    scalar = tf.TensorSpec([], tf.int32)
    temperature = tf.TensorSpec([], tf.float32)
    seed = tf.TensorSpec([2], tf.int32)

    @tf.function(
        input_signature=[window, scalar, temperature, seed], autograph=False
    )
    def next_token(
        window: tf.Tensor,
        filled: tf.Tensor,
        temperature: tf.Tensor,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        logits = model(window[tf.newaxis], training=False)[0, filled - 1]
        return pick(logits, temperature, seed)

    return next_token


def pick(
    logits: tf.Tensor, temperature: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Draws a token, int32 `[]`, from `softmax(logits [V] / temperature)`.

    At temperature 0 it is the likeliest. Both by one formula, the largest of
    `logits + temperature · g` with g from Gumbel's distribution
    (Maddison et al., 2014, https://arxiv.org/abs/1411.0030).
    """
    # Above 0: its logarithm must be finite.
    uniform = tf.random.stateless_uniform(
        tf.shape(logits), seed, minval=1e-20, maxval=1.0
    )
    gumbel = -tf.math.log(-tf.math.log(uniform))
    # Logits of any precision.
    noisy = tf.cast(logits, tf.float32) + temperature * gumbel
    return tf.argmax(noisy, output_type=tf.int32)


def generate(
    model: keras.Model,
    prompt: Sequence[int],
    count: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[int]:
    """Returns the `count` tokens that follow a prompt.

    Args:
        model: As for `make_next_token`.
        prompt: One token or more; the model sees the last `T`.
        count: How many tokens to write.
        temperature: 0 takes the likeliest token each time; 1 draws them as
            likely as the model says; between them it is bolder the higher.
        seed: With the number of the token it fixes each draw.
    """
    next_token = make_next_token(model)
    length = model.inputs[0].shape[1]
    tokens = list(prompt)
    for number in range(count):
        seen = tokens[-length:]
        window = seen + [0] * (length - len(seen))
        token = next_token(window, len(seen), temperature, [seed, number])
        tokens.append(int(token))
    return tokens[len(prompt) :]


def main() -> None:
    """Prints the prompt and what follows it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_dir", type=pathlib.Path, required=True)
    parser.add_argument("--prompt", default="Return ")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    path = arguments.model_dir / "export" / "model.keras"
    if not path.exists():
        parser.error(f"there is no {path}; train with --export=keras.")
    if not arguments.prompt:
        parser.error("--prompt is empty; give one byte or more.")
    if not arguments.temperature >= 0:
        parser.error("--temperature must be 0 or more.")
    model = keras.saving.load_model(path)
    if model.output.shape[1:] != (*model.inputs[0].shape[1:], 256):
        parser.error(
            f"{path} holds no model of bytes; train with --model=transformer "
            "--dataset=text."
        )
    written = generate(
        model,
        arguments.prompt.encode(),
        arguments.count,
        temperature=arguments.temperature,
        seed=arguments.seed,
    )
    # A character of several bytes may be torn at the end.
    print(arguments.prompt + bytes(written).decode(errors="replace"))


if __name__ == "__main__":
    main()
