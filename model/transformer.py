r"""A decoder of text: which byte, or other token, comes next?

    python train.py --model=transformer --dataset=text --train_steps=2000 \
        --global_batch_size=16 --optimizer=adamw --learning_rate=3e-3 \
        --weight_decay=0.1 --global_clipnorm=1 \
        --learning_rate_schedule=cosine:warmup_steps=100 --export=keras

On two CPU cores this took 7 minutes (416 s from start to end, 508 s of
processor time) to 2.26 bits per byte on held-out text, the docstrings of Python
3.11's standard library; half-way it was at 2.44. After it
`python -m examples.generate_text` writes on from a prompt.

Blocks of attention and feed-forward layers, normalized before each (Xiong et
al., 2020, https://arxiv.org/abs/2002.04745), from plain Keras layers. There are
no position embeddings. A convolution over the last `order` tokens tells their
order; how far back the others are, causal attention finds out by itself (Haviv
et al., 2022, https://arxiv.org/abs/2203.16634).

Shapes: `B` batch, `T` tokens of a window, `V` different tokens.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

import options as options_lib
from errors import RequestError
from model import ModelConfig
from model import _features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of `transformer`."""

    layers: int = 4
    """Blocks of attention and feed-forward layers. Positive."""
    width: int = 128
    """Values of each token between the blocks; a multiple of `heads`."""
    heads: int = 4
    """Attention heads of each block. Positive."""
    order: int = 4
    """Tokens, the current one included, that the convolution joins.
    Positive."""
    dropout: float = 0.0
    """Part of each block's results that is dropped, in [0, 1)."""

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "order"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)}: must be positive."
                )
        if self.width % self.heads:
            raise ValueError(
                f"width={self.width}: must be a multiple of heads={self.heads}."
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}: must be in [0, 1).")


def build(
    config: ModelConfig, element_spec: Sequence[Any], num_outputs: int
) -> keras.Model:
    """Builds the model; see `model` for the arguments.

    Returns:
        A model from tokens `[B, T]` below `V` = `num_outputs` to the logits
        `[B, T, V]` of the token after each.

    Raises:
        RequestError: for a wrong option, or features that are no tokens.
    """
    chosen = options_lib.parse(config.model_options, Options, "model_options")
    _check(element_spec)
    inputs = _features.make_inputs(element_spec)
    x = keras.layers.Embedding(num_outputs, chosen.width, name="tokens")(inputs)
    x = keras.layers.Conv1D(
        chosen.width, chosen.order, padding="causal", name="order"
    )(x)
    for i in range(chosen.layers):
        x = _add(x, _attention(x, chosen, i), chosen, f"attention_{i}")
        x = _add(x, _feed_forward(x, chosen, i), chosen, f"feed_forward_{i}")
    x = keras.layers.LayerNormalization(name="norm")(x)
    outputs = keras.layers.Dense(
        num_outputs,
        dtype=keras.config.dtype_policy().variable_dtype,
        name="outputs",
    )(x)
    return keras.Model(inputs, outputs, name="transformer")


def per_example_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns nats per token `[B]`, the mean over a window `[B, T]`."""
    nats = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_mean(nats, axis=-1)


def make_metrics() -> list[keras.Metric]:
    """Returns bits per token, and how often the likeliest one is right.

    A token that is no byte has its bits counted under the same name.
    """
    return [
        keras.metrics.MeanMetricWrapper(_bits, name="bits_per_byte"),
        keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
    ]


def _bits(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return per_example_loss(tf.cast(labels, tf.int32), logits) / math.log(2)


def _check(element_spec: Sequence[Any]) -> None:
    features, labels, _ = element_spec
    fits = not isinstance(features, dict) and all(
        spec.dtype.is_integer and spec.shape.rank == 2
        for spec in (features, labels)
    )
    if not fits or features.shape[1] != labels.shape[1]:
        raise RequestError(
            "--model=transformer: needs one feature [T] of integers and as "
            "many labels; use --dataset=text."
        )


def _attention(
    x: keras.KerasTensor, chosen: Options, i: int
) -> keras.KerasTensor:
    x = keras.layers.LayerNormalization(name=f"attention_norm_{i}")(x)
    return keras.layers.MultiHeadAttention(
        chosen.heads,
        chosen.width // chosen.heads,
        # A key's bias changes nothing: its gradient is rounding alone, which
        # Adam would scale up, to other weights on each number of replicas.
        use_bias=False,
        name=f"attention_{i}",
    )(x, x, use_causal_mask=True)


def _feed_forward(
    x: keras.KerasTensor, chosen: Options, i: int
) -> keras.KerasTensor:
    x = keras.layers.LayerNormalization(name=f"feed_forward_norm_{i}")(x)
    x = keras.layers.Dense(
        4 * chosen.width, activation="gelu", name=f"feed_forward_in_{i}"
    )(x)
    return keras.layers.Dense(chosen.width, name=f"feed_forward_out_{i}")(x)


def _add(
    x: keras.KerasTensor,
    residual: keras.KerasTensor,
    chosen: Options,
    name: str,
) -> keras.KerasTensor:
    if chosen.dropout:
        residual = keras.layers.Dropout(chosen.dropout, name=f"{name}_dropout")(
            residual
        )
    return keras.layers.Add(name=f"{name}_add")([x, residual])
