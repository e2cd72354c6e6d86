"""What parent and child hand each other: one JSON and one file of arrays."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np


def write(
    folder: Path,
    name: str,
    message: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Writes `<name>.npz` and then `<name>.json`.

    Args:
        folder: Must exist.
        name: `request` or `reply`.
        message: What JSON can hold.
        arrays: Name → array of any dtype.
    """
    # NumPy's format forgets the name of a dtype that is not its own.
    odd = {k: a.dtype.name for k, a in arrays.items() if a.dtype.kind == "V"}
    plain = {
        key: array.view(f"u{array.itemsize}") if key in odd else array
        for key, array in arrays.items()
    }
    # Any: a name could be one of its own arguments, for all mypy knows.
    unchecked: Any = plain
    np.savez(folder / f"{name}.npz", **unchecked)
    text = json.dumps({"message": dict(message), "dtypes": odd})
    (folder / f"{name}.json").write_text(text)


def read(
    folder: Path, name: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns what `write` was given."""
    text = json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    for key, dtype in text["dtypes"].items():
        arrays[key] = arrays[key].view(np.dtype(dtype))
    return text["message"], arrays
