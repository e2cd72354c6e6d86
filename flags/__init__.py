"""The command line: words → frozen dataclasses, read once.

`run`, `strategy`, `data`, `model` and `training` hold one group of flags each:

    flags.DEFINE_…                    one for each field, at module level
    <group>_config() -> <Group>Config

A flag's name is the name of a field of the group's dataclass, and its default
is the field's default. This is the only package that imports `absl.flags`.
"""
