"""A training that is left alone, and in what another one differs from it."""

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from tests.chaos import places
from tests.chaos import waiting
from tests.chaos.jobs import Job

FINISH_SECS = 300.0


def straight(place: str, root: Path) -> Path:
    """Returns the folder of a training that is left alone."""
    folder = root / f"straight-{place}"
    if folder.exists():
        return folder
    job = Job(places.PLACES[place], folder, root / folder.name)
    with contextlib.closing(job):
        job.start()
        waiting.wait(job.is_over, FINISH_SECS)
        if not job.is_done():
            raise RuntimeError(f"not done when left alone: {job.output()}")
    return folder


def different(straight: Path, hit: Path, step: int) -> list[str]:
    """Returns the variables that differ in one bit or more."""
    # Late: the command line is read without TensorFlow.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    name = f"checkpoints/step-{step}"
    try:
        readers = [
            tf.train.load_checkpoint(str(folder / name))
            for folder in (straight, hit)
        ]
    except (tf.errors.OpError, ValueError) as error:
        return [f"all: {error}"]
    maps = [reader.get_variable_to_shape_map() for reader in readers]
    return sorted(
        name
        for name in maps[0].keys() | maps[1].keys()
        if not all(name in each for each in maps)
        or len({_bits(reader.get_tensor(name)) for reader in readers}) > 1
    )


def _bits(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    array = np.asarray(value)
    return str(array.dtype), array.shape, array.tobytes()
