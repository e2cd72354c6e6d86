"""Reads one number from the environment, for `slurm` and `kubernetes`."""

import re
from collections.abc import Mapping

from errors import RequestError

# More digits than any of these values has; int() itself is slow on thousands.
_INTEGER = re.compile(r"[0-9]{1,12}")


def integer(
    environ: Mapping[str, str],
    name: str,
    least: int,
    most: int,
    advice: str,
) -> int:
    """Returns a variable that must be a whole number in `[least, most]`.

    Args:
        environ: Environment variables.
        name: Name of the variable.
        least: Smallest value allowed.
        most: Largest value allowed.
        advice: What to do if it is not there or is something else.

    Raises:
        RequestError: if it is.
    """
    text = environ.get(name, "")
    if not text:
        raise RequestError(f"{name} is not set; {advice}.")
    if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
        raise RequestError(
            f"{name}={text!r}: must be an integer from {least} to {most}; "
            f"{advice}."
        )
    return int(text)
