"""From words to values, and from parsed flags to a dataclass."""

import dataclasses
from typing import Any
from typing import TypeVar

from absl import flags

Config = TypeVar("Config")


class Ints(flags.ArgumentParser):
    """Reads `1,2,2,1`; for `flags.DEFINE`."""

    def parse(self, argument: Any) -> list[int]:
        """Returns the integers of a text, or of a list of them."""
        if isinstance(argument, str):
            argument = argument.split(",") if argument else []
        return [int(number) for number in argument]

    def flag_type(self) -> str:
        """Names the type, for messages."""
        return "ints"


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
