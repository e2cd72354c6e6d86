"""From parsed flags to a dataclass."""

import dataclasses
from typing import TypeVar

from absl import flags

Config = TypeVar("Config")


def read(cls: type[Config]) -> Config:
    """Returns a `cls` whose every field has the value of its flag."""
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # any dataclass
    values = {field.name: flags.FLAGS[field.name].value for field in fields}
    # absl gives lists; the dataclasses are frozen.
    return cls(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
    )
