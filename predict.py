"""Predictions of an exported model, for a file of inputs.

    python -m predict runs/…/export/model.keras images.npy predictions.csv

Inputs are a `.npy` file, the first axis being the rows; or a `.npz` with one
array for each input, by name. Predictions are what the model was trained to
give, for a classification one logit a class: `.npy`; `.npz` if there are
several outputs; or `.csv`, one line a row. Exit codes: 0 done; 1 it failed; 2
the request was wrong.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from errors import RequestError
from errors import RunError
from flags import registry

if TYPE_CHECKING:
    from training.exported import Input

# Before TensorFlow is imported: its notes on its own build hide ours.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"

Arrays = Mapping[str, np.ndarray]
_KINDS = (".npy", ".npz", ".csv")


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line and predicts; returns the exit code."""
    arguments = _parse(words)
    try:
        run(
            arguments.export,
            arguments.inputs,
            arguments.predictions,
            batch_size=arguments.batch_size,
            modules=arguments.module,
        )
    except (RequestError, RunError) as error:
        print(f"predict: {error}", file=sys.stderr)
        return 2 if isinstance(error, RequestError) else 1
    return 0


def run(
    export: str,
    inputs: str,
    predictions: str,
    *,
    batch_size: int = 256,
    modules: Sequence[str] = (),
) -> None:
    """Writes the predictions of an export for every row of a file.

    Args:
        export: `model.keras`, `model.onnx` or the folder `saved_model`.
        inputs: A `.npy` or `.npz` file.
        predictions: The `.npy`, `.npz` or `.csv` file to write.
        batch_size: Rows at a time, 1 or more.
        modules: Dotted paths of your own modules that register layers.

    Raises:
        RequestError: if a file is none that can be read or written, or if the
            inputs are not what the model takes.
        RunError: if the model fails, or the predictions cannot be written, as
            on a full disk.
    """
    if batch_size < 1:
        raise RequestError(f"--batch_size={batch_size}: must be 1 or more.")
    _check_place(predictions)
    arrays = _read(inputs)
    from training import exported

    # Their layers register themselves; a `.keras` file names them only.
    for name in (*registry.names("model"), *modules):
        registry.load("model", name, "module")
    model = exported.load(export)
    chosen = _choose(arrays, model.inputs, inputs)
    parts = [model.run(batch) for batch in _batches(chosen, batch_size)]
    outputs = {
        name: np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }
    _write(predictions, outputs)
    shapes = ", ".join(str(list(each.shape)) for each in outputs.values())
    print(f"{predictions}: {shapes}")


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m predict",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("export", help="model.keras, model.onnx, saved_model")
    parser.add_argument("inputs", help="a .npy or .npz file")
    parser.add_argument("predictions", help="a .npy, .npz or .csv file")
    parser.add_argument(
        "--batch_size", type=int, default=256, help="rows at a time"
    )
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        help="a module of your own that registers layers; may be repeated",
    )
    return parser.parse_args(words)


def _check_place(path: str) -> None:
    """Refuses what could not be written, before anything is computed."""
    if Path(path).suffix not in _KINDS:
        raise RequestError(f"{path}: must end in one of {', '.join(_KINDS)}.")
    if not Path(path).parent.is_dir():
        raise RequestError(f"{path}: there is no folder {Path(path).parent}.")


def _read(path: str) -> Arrays:
    """Returns the arrays of a file; that of a `.npy` has an empty name."""
    if Path(path).suffix not in (".npy", ".npz"):
        raise RequestError(f"{path}: must be a .npy or .npz file.")
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"": loaded}
            arrays = {name: loaded[name] for name in loaded.files}
    # It may be broken in any way. Objects, which would run code, are refused.
    except Exception as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise RequestError(f"{path} cannot be read: {reason}.") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise RequestError(f"{path}: {name} is no array; leave it out.")
    return arrays


def _choose(arrays: Arrays, inputs: Mapping[str, "Input"], path: str) -> Arrays:
    """Returns the array of each input, as the model takes it."""
    if len(arrays) == len(inputs) == 1:
        arrays = dict(zip(inputs, arrays.values(), strict=True))
    missing = [name for name in inputs if name not in arrays]
    if missing:
        raise RequestError(
            f"{path}: there is no array {' or '.join(missing)}; the model "
            f"takes {', '.join(inputs)}, by name in a .npz file."
        )
    chosen = {
        name: _fit(arrays[name], each, f"{path}: {name}")
        for name, each in inputs.items()
    }
    lengths = {len(array) for array in chosen.values()}
    if len(lengths) > 1 or 0 in lengths:
        raise RequestError(
            f"{path}: has {' and '.join(map(str, sorted(lengths)))} rows; "
            "every input must have as many, 1 or more."
        )
    return chosen


def _fit(array: np.ndarray, wanted: "Input", what: str) -> np.ndarray:
    shape = array.shape[1:]
    fits = array.ndim == len(wanted.shape) + 1 and all(
        most in (None, size)
        for size, most in zip(shape, wanted.shape, strict=True)
    )
    # uint8 to float32 is fine, 0.5 to an integer or a name to a number is not.
    if not fits or not np.can_cast(array.dtype, wanted.dtype, "same_kind"):
        row = ", ".join("any" if n is None else str(n) for n in wanted.shape)
        raise RequestError(
            f"{what} is {array.dtype} {list(array.shape)}; the model takes "
            f"{wanted.dtype} [rows{', ' * bool(row)}{row}]."
        )
    with np.errstate(over="ignore"):
        taken = array.astype(wanted.dtype, copy=False)
    # Rounding to fewer digits is fine, a number out of range is not.
    kept = np.full(array.shape, True)
    if wanted.dtype.kind in "iu":
        kept = taken == array
    elif wanted.dtype.kind == "f":
        kept = np.isfinite(taken) | ~np.isfinite(array)
    if not kept.all():
        raise RequestError(
            f"{what} has {array[~kept][0]}; the model takes {wanted.dtype}, "
            "which ends before it."
        )
    return taken


def _batches(arrays: Arrays, size: int) -> Iterator[Arrays]:
    rows = len(next(iter(arrays.values())))
    for start in range(0, rows, size):
        yield {k: array[start : start + size] for k, array in arrays.items()}


def _write(path: str, outputs: Arrays) -> None:
    """Writes what the model gave, in the form that the name asks for."""
    kind, first = Path(path).suffix, next(iter(outputs.values()))
    if kind != ".npz" and len(outputs) > 1:
        raise RequestError(
            f"{path}: the model gives {', '.join(outputs)}; write a .npz file."
        )
    if kind == ".csv" and first.ndim > 2:
        raise RequestError(
            f"{path}: predictions {list(first.shape)} are no table; write a "
            ".npy file."
        )
    try:
        if kind == ".npz":
            # mypy takes a name for the keyword `allow_pickle`.
            np.savez(path, **dict(outputs))  # type: ignore[arg-type]
        elif kind == ".npy":
            np.save(path, first)
        else:
            # As many digits as it takes to be read back the same.
            digits = 17 if first.itemsize > 4 else 9
            np.savetxt(path, first, delimiter=",", fmt=f"%.{digits}g")
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error.strerror}."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
