"""The command line: words → frozen dataclasses, read once.

Each module but `registry` and `command_line` holds one group of flags:

    flags.DEFINE_…                    one for each field, at module level
    <group>_config() -> <Group>Config

A flag's name is the name of a field of the group's dataclass, and its default
is the field's default. This is the only package that imports `absl.flags`.
"""
