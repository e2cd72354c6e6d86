r"""What does a pretrained model save?

A deep, narrow network learns the digits 0 to 7. Then two runs have the same
few steps to learn all ten: one starts from its layers, one from new ones.
Weights whose name and shape fit are taken over; the last layer, for more
classes, is new in both.

    python -m examples.finetune
    python -m examples.finetune --freeze='hidden_[0-2]' --steps=80

By hand, with data of your own:

    python train.py --model=cnn --export=keras --model_dir=runs/first
    python train.py --model=cnn --dataset=my_package.my_data \
        --initial_model='runs/first/export/model.keras:freeze=conv_*'
"""

import argparse
import contextlib
import io
import tempfile
from pathlib import Path

import train
from data import DataConfig
from flags.command_line import Configs
from model import ModelConfig
from training import RunConfig
from training import TrainConfig

_DATASET = "examples._digit_subset"
_FIRST = "0x1x2x3x4x5x6x7"
_SECOND = f"{_FIRST}x8x9"
_MODEL = ModelConfig(
    model="mlp", model_options=("hidden=64x64x64x64x64x64x64",)
)


def fit(
    folder: Path, digits: str, steps: int, initial_model: str = ""
) -> dict[str, float]:
    """Trains on some digits; returns loss and accuracy on unseen ones.

    Args:
        folder: Where the run writes; its `export/model.keras` is the model.
        digits: Such as `0x1x2`.
        steps: Steps of 32 examples.
        initial_model: As `--initial_model`.
    """
    configs = Configs(
        run=RunConfig(model_dir=str(folder)),
        data=DataConfig(dataset=f"{_DATASET}:{digits}", global_batch_size=32),
        model=_MODEL,
        train=TrainConfig(
            train_steps=steps,
            steps_per_loop=steps,
            eval_every_steps=0,
            callbacks=(),
            export=("keras",),
            initial_model=initial_model,
        ),
    )
    with contextlib.redirect_stdout(io.StringIO()):
        return train.run(configs)


def compare(
    folder: Path, first_steps: int, steps: int, freeze: str = ""
) -> dict[str, dict[str, float]]:
    """Returns how each start ends, after equal steps on the same examples."""
    fit(folder / "first", _FIRST, first_steps)
    start = f"{folder / 'first' / 'export' / 'model.keras'}"
    if freeze:
        start += f":freeze={freeze}"
    return {
        "new weights": fit(folder / "new", _SECOND, steps),
        "pretrained": fit(folder / "pretrained", _SECOND, steps, start),
    }


def main(words: list[str] | None = None) -> None:
    """Prints both ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first_steps", type=int, default=500)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--freeze", default="")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        ends = compare(
            Path(folder),
            arguments.first_steps,
            arguments.steps,
            arguments.freeze,
        )
    print(f"After {arguments.steps} steps, on unseen digits:")
    for start, end in ends.items():
        print(
            f"  {start:<12} loss {end['loss']:.3f}, "
            f"accuracy {end['accuracy']:.1%}"
        )


if __name__ == "__main__":
    main()
