"""The flags of a run, as TensorBoard shows them."""

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Mapping[str, Any]]  # group → flag → value
Settings = dict[str, bool | int | float | str]

# Flags of data, model and training that leave the result as it is. All others
# are columns by which runs are compared.
_INDIFFERENT = {
    "data_dir",
    "download",
    "skip_bad_examples",
    "steps_per_loop",
    "eval_every_steps",
    "checkpoint_every_steps",
    "checkpoints_to_keep",
    "checkpoint_errors",
    "preemption_grace_secs",
    "run_eagerly",
    "jit_compile",
    "callbacks",
    "profile",
    "export",
}


def as_text(config: Config) -> str:
    """Returns all flags as a table in Markdown."""
    lines = ["| flag | value |", "|---|---|"]
    for group, flags in config.items():
        lines.append(f"| **{group}** | |")
        lines += [
            f"| {name} | {_word(value)} |" for name, value in flags.items()
        ]
    return "\n".join(lines)


def hyperparameters(config: Config) -> Settings:
    """Returns the flags that decide what comes out."""
    seed = config.get("run", {}).get("seed")
    flags = {} if seed is None else {"seed": seed}
    for group in ("data", "model", "train"):
        flags |= config.get(group, {})
    return {
        name: value if isinstance(value, bool | int | float) else _word(value)
        for name, value in flags.items()
        if name not in _INDIFFERENT
    }


def _word(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"
