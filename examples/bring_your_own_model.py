r"""Your own Keras model on one device, several replicas, several workers.

`network` is a model as it is written for `fit`; it knows of no replicas.
`build` is all that is added, in the one file that `--model` names:

    python train.py --model=examples.bring_your_own_model
    python train.py --model=examples.bring_your_own_model \
        --model_options=width=64,dropout=0.2 --strategy=mirrored \
        --devices=cpu:0,cpu:1
    python launch.py --num_workers=2 -- --model=examples.bring_your_own_model

The loss is another than the default here, to show where it goes.

    python -m examples.bring_your_own_model

trains it on one replica and on two, and prints how far apart they are.
"""

import argparse
import contextlib
import dataclasses
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import options
import train
from flags.command_line import Configs
from model import ModelConfig
from strategies import StrategyConfig
from training import RunConfig
from training import TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What `--model_options` may set."""

    width: int = 32
    """Units of the hidden layer."""
    dropout: float = 0.0
    """Part of them that is dropped."""


def network(
    image: tuple[int, ...], classes: int, width: int, dropout: float
) -> keras.Model:
    """Any Keras model; layers with names, since checkpoints go by them."""
    x = inputs = keras.Input(image, name="image")
    x = keras.layers.Conv2D(8, 3, activation="relu", name="conv")(x)
    x = keras.layers.Flatten(name="flat")(x)
    x = keras.layers.Dense(width, activation="relu", name="hidden")(x)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    # Half precision ends here.
    kind = keras.config.dtype_policy().variable_dtype
    outputs = keras.layers.Dense(classes, dtype=kind, name="logits")(x)
    return keras.Model(inputs, outputs)


def build(
    config: ModelConfig, element_spec: Sequence[Any], num_outputs: int
) -> keras.Model:
    """Builds the model for the data; see `model` for the arguments."""
    chosen = options.parse(config.model_options, Options, "model_options")
    image = tuple(element_spec[0].shape[1:])
    return network(image, num_outputs, chosen.width, chosen.dropout)


def per_example_loss(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Cross-entropy with smoothed labels, `[B]`; leave out for the usual one.

    A sum over examples, never a mean: what divides it, the global batch, is
    known to the step alone.
    """
    return keras.losses.categorical_crossentropy(
        keras.ops.one_hot(labels, outputs.shape[-1]),
        outputs,
        from_logits=True,
        label_smoothing=0.1,
    )


def fit(folder: Path, devices: tuple[str, ...], steps: int) -> dict[str, float]:
    """Trains on some devices; returns loss and accuracy on unseen digits."""
    configs = Configs(
        run=RunConfig(model_dir=str(folder)),
        strategy=StrategyConfig(strategy="mirrored", devices=devices),
        model=ModelConfig(model="examples.bring_your_own_model"),
        train=TrainConfig(
            train_steps=steps, steps_per_loop=50, eval_every_steps=0
        ),
    )
    with contextlib.redirect_stdout(io.StringIO()):
        return train.run(configs)


def main(words: list[str] | None = None) -> None:
    """Prints what one replica and two have learned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args(words).steps
    with tempfile.TemporaryDirectory() as folder:
        # The CPU is split before its first use: the two come first.
        two = fit(Path(folder, "two"), ("cpu:0", "cpu:1"), steps)
        one = fit(Path(folder, "one"), ("cpu:0",), steps)
    for name, end in (("one replica", one), ("two replicas", two)):
        print(
            f"{name:<12} loss {end['loss']:.6f}, accuracy {end['accuracy']:.1%}"
        )
    print(f"apart by {abs(two['loss'] / one['loss'] - 1):.0e} of the loss")


if __name__ == "__main__":
    main()
