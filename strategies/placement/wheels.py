"""Whether the installed TensorFlow can drive a TPU."""

import importlib.metadata
import re

from errors import RequestError

# Rival distributions of the one module `tensorflow`.
_OTHERS = ("tensorflow", "tensorflow-cpu", "tf-nightly")
# tensorflow-tpu 2.20.0 asks for any 0.0.x from 14 on. It starts with 0.0.21;
# with 0.0.52 it fails, for want of a symbol that is gone.
_TENSORFLOW = "2.20."
_LIBTPU = "0.0.21"
_FRESH = "`pip install -e .[tpu]` into a fresh environment"


def check() -> None:
    """Looks for `tensorflow-tpu`, alone, beside a libtpu it starts with.

    Raises:
        RequestError: with the command that mends it.
    """
    tpu = _version("tensorflow-tpu")
    others = [
        f"{name} {version}" for name in _OTHERS if (version := _version(name))
    ]
    if not tpu:
        found = " and ".join(others) or "TensorFlow of no known wheel"
        raise RequestError(
            f"--strategy=tpu: {found} is installed, which drives no TPU; "
            f"{_FRESH}, on a machine that has one."
        )
    if others:
        raise RequestError(
            f"--strategy=tpu: tensorflow-tpu {tpu} and {' and '.join(others)} "
            "are both installed, and overwrote each other's files; "
            f"{_FRESH}."
        )
    if tpu.startswith(_TENSORFLOW):
        _check_libtpu(tpu)


def _check_libtpu(tpu: str) -> None:
    found = _version("libtpu")
    if not found:
        raise RequestError(
            f"--strategy=tpu: tensorflow-tpu {tpu} is installed without "
            f"libtpu; `pip install libtpu=={_LIBTPU}`."
        )
    if _numbers(found) > _numbers(_LIBTPU):
        raise RequestError(
            f"--strategy=tpu: tensorflow-tpu {tpu} is known to start with "
            f"libtpu {_LIBTPU}, not with {found}; `pip install "
            f"libtpu=={_LIBTPU}`."
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _version(name: str) -> str:
    """Returns a distribution's version; empty: it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
