"""What is compared: every option, with two optimizers, in four places.

    python -m tests.equivalence.cells mirrored-4 FOLDER

runs all cells of a place one after another, so that they share the start of
one process, each into `FOLDER/<place>/<cell>-<optimizer>`.
"""

import dataclasses
import gc
import importlib
import sys
import traceback
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import train
from data import DataConfig
from flags.command_line import Configs
from model import ModelConfig
from strategies import StrategyConfig
from strategies.cluster import watch
from tests import wheel
from training import RunConfig
from training import TrainConfig

SEED = 7
STEPS = 10
BATCH_SIZE = 32
FOUR = tuple(f"cpu:{index}" for index in range(4))
PLACES = {
    "one_device": StrategyConfig(),
    "mirrored-2": StrategyConfig(strategy="mirrored", devices=FOUR[:2]),
    "mirrored-4": StrategyConfig(strategy="mirrored", devices=FOUR),
    "workers-2": StrategyConfig(strategy="multi_worker_mirrored"),
}
OTHERS = [place for place in PLACES if place != "one_device"]
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {
        "optimizer": "sgd",
        "optimizer_options": ("momentum=0.9",),
        "learning_rate": 0.05,
    },
    "adam": {"optimizer": "adam", "learning_rate": 1e-3},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One set of options."""

    train: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of `TrainConfig`."""
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of `ModelConfig`."""
    data: str = ""
    """Argument of the dataset."""

    @property
    def is_exact(self) -> bool:
        """Whether float32 rounding is all that may differ."""
        return "dtype_policy" not in self.model and not self.is_compressed

    @property
    def is_compressed(self) -> bool:
        """Whether replicas, if there are several, send rounded gradients."""
        return "gradient_compression" in self.train


ACCUMULATION = {"gradient_accumulation_steps": 4}
# Low enough to change every step.
CLIPNORM = {"global_clipnorm": 0.5}
EMA = {"ema_momentum": 0.8}
CELLS = {
    "plain": Cell(),
    "accumulation 4": Cell(train=ACCUMULATION),
    "clipnorm": Cell(train=CLIPNORM),
    "EMA": Cell(train=EMA),
    "mixed_bfloat16": Cell(model={"dtype_policy": "mixed_bfloat16"}),
    "mixed_float16": Cell(
        model={"dtype_policy": "mixed_float16"}, data="overflow"
    ),
    "batch normalization": Cell(
        model={"model_options": ("normalization=true",)}
    ),
    "regularization": Cell(model={"model_options": ("penalty=0.01",)}),
    "embedding": Cell(data="words"),
    "jit_compile": Cell(train={"jit_compile": True}),
    "bfloat16 gradients": Cell(train={"gradient_compression": "bfloat16"}),
    # Without XLA, in which Keras cannot synchronize a normalization.
    "all at once": Cell(
        train={
            **ACCUMULATION,
            **CLIPNORM,
            **EMA,
            "weight_decay": 0.01,
            "learning_rate_schedule": "cosine:warmup_steps=3",
        },
        model={"model_options": ("normalization=true", "penalty=0.01")},
        data="words",
    ),
}
if not wheel.HAS_XLA_ON_CPU:
    del CELLS["jit_compile"]
# The same sums in another order, on one device: what rounding alone does.
NOISE = {
    f"{name}, accumulation 2": dataclasses.replace(
        cell, train={**cell.train, "gradient_accumulation_steps": 2}
    )
    for name, cell in CELLS.items()
    if "dtype_policy" in cell.model
}


def main(argv: Sequence[str]) -> None:
    """Runs the cells of one place; one that fails leaves its traceback."""
    _, place, folder = argv
    # Every new run collects garbage: 17 % of the time with all of TensorFlow
    # to walk.
    importlib.import_module("tests.equivalence.small")
    gc.collect()
    gc.freeze()
    cells = CELLS | NOISE if place == "one_device" else CELLS
    for name, cell in cells.items():
        for optimizer in OPTIMIZERS:
            model_dir = run_dir(Path(folder), place, name, optimizer)
            model_dir.mkdir(parents=True, exist_ok=True)
            try:
                _run(cell, place, optimizer, model_dir)
            except Exception:
                (model_dir / "error.txt").write_text(traceback.format_exc())
                if place == "workers-2":
                    raise  # the other worker would be out of step
    # The other worker may need longer to end, and must not call this a death.
    watch.leave(0)


def run_dir(folder: Path, place: str, cell: str, optimizer: str) -> Path:
    """Returns where a run leaves what it wrote."""
    return folder / place / f"{cell}-{optimizer}".replace(" ", "_")


def _run(cell: Cell, place: str, optimizer: str, model_dir: Path) -> None:
    train.run(
        Configs(
            RunConfig(model_dir=str(model_dir), seed=SEED),
            PLACES[place],
            DataConfig(
                dataset=f"tests.equivalence.digit_words:{cell.data}",
                global_batch_size=BATCH_SIZE,
            ),
            ModelConfig(model="tests.equivalence.small", **cell.model),
            TrainConfig(
                train_steps=STEPS,
                steps_per_loop=1,
                callbacks=("tests.equivalence.copies",),
                **OPTIMIZERS[optimizer],
                **cell.train,
            ),
        )
    )


if __name__ == "__main__":
    main(sys.argv)
