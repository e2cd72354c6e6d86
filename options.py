"""`key=value` words from a flag, read into a frozen dataclass.

Models, datasets and learning rate schedules have settings of their own that
do not deserve a flag each. They declare them as a frozen dataclass in which
every field has a default; the user writes `key=value,key=value`.
"""

import dataclasses
import typing
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

from errors import RequestError

Options = TypeVar("Options")


def parse(words: str | Sequence[str], cls: type[Options], flag: str) -> Options:
    """Reads `key=value` words into an instance of `cls`.

    Args:
        words: One `key=value` each, or all of them with commas between. A
            tuple of integers is written `3x3`.
        cls: Frozen dataclass; its fields are `int`, `float`, `bool`, `str` or
            `tuple[int, ...]`.
        flag: Name of the flag the words came from, for messages.

    Raises:
        RequestError: for a word without `=`, an unknown or repeated key, or a
            value of the wrong type or out of range.
    """
    if isinstance(words, str):
        words = words.split(",") if words else []
    pairs = split(words, flag)
    types = typing.get_type_hints(cls)
    fields = {field.name: types[field.name] for field in _fields(cls)}
    values = {}
    for key, word in pairs.items():
        if key not in fields:
            allowed = ", ".join(sorted(fields)) or "none"
            raise RequestError(
                f"--{flag}: unknown key {key!r}; allowed: {allowed}."
            )
        read, expected = _READERS[fields[key]]
        try:
            values[key] = read(word)
        except (ValueError, KeyError) as error:
            raise RequestError(
                f"--{flag}: {key}={word} is not {expected}."
            ) from error
    try:
        return cls(**values)
    except ValueError as error:
        raise RequestError(f"--{flag}: {error}") from error


def split(words: Sequence[str], flag: str) -> dict[str, str]:
    """Splits `["a=1", "b=2"]` into `{"a": "1", "b": "2"}`.

    Raises:
        RequestError: for a word without `=` or a repeated key.
    """
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise RequestError(
                f"--{flag}: {word!r} is not key=value; write one."
            )
        if key in pairs:
            raise RequestError(
                f"--{flag}: {key!r} is given twice; give it once."
            )
        pairs[key] = value
    return pairs


def _fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)


def _read_bool(word: str) -> bool:
    return {"true": True, "false": False}[word.lower()]


def _read_ints(word: str) -> tuple[int, ...]:
    return tuple(int(part) for part in word.split("x"))


_READERS: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    int: (int, "an integer"),
    float: (float, "a number"),
    bool: (_read_bool, "true or false"),
    str: (str, "a word"),
    tuple[int, ...]: (_read_ints, "integers such as 3x3"),
}
