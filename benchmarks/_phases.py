"""Where the time of a start goes: `train.py`, with stopwatches put into it.

    python -m benchmarks._phases --model=mlp …

prints phase → seconds as JSON and ends after the first loop of steps. A phase
is a list of functions; each counts what is not counted by one inside it.
"""

import builtins
import functools
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any
from typing import NoReturn

# Phase → module, function.
_PHASES = {
    "strategy": [("strategies.one_device", "create")],
    "data": [
        ("data.pipeline.prepare", "element_spec"),
        ("data.pipeline.distribute", "train_dataset"),
        ("data.pipeline.distribute", "eval_dataset"),
    ],
    "model": [("model.mlp", "build"), ("training.state", "create")],
    "files": [
        ("training.checkpoint", "restore"),
        ("training.record", "open_run"),
        ("training.record", "begin"),
    ],
}


class Stopwatch:
    """Adds up seconds by phase; what runs inside another stops that one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running = ["other"]
        self._since = time.perf_counter()

    def wrap(self, phase: str, function: Callable[..., Any]) -> Any:
        """Returns `function`, counted."""

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._switch()
            self._running.append(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self._switch()
                self._running.pop()

        return counted

    def stop(self) -> dict[str, float]:
        """Returns the seconds so far, by phase."""
        self._switch()
        return self.seconds

    def _switch(self) -> None:
        now, phase = time.perf_counter(), self._running[-1]
        passed = now - self._since
        self.seconds[phase] = self.seconds.get(phase, 0.0) + passed
        self._since = now


def main() -> None:
    """Runs `train.py` with the flags given, up to its first loop's end."""
    stopwatch = Stopwatch()
    builtins.__import__ = stopwatch.wrap("imports", builtins.__import__)
    for phase, functions in _PHASES.items():
        for name, attribute in functions:
            module = importlib.import_module(name)
            function = stopwatch.wrap(phase, getattr(module, attribute))
            setattr(module, attribute, function)
    inner_loop = importlib.import_module("training.inner_loop")
    train = importlib.import_module("train")
    command_line = importlib.import_module("flags.command_line")

    def call_and_end(*args: Any) -> NoReturn:
        stopwatch.wrap("first_step", call)(*args)
        print("\n" + json.dumps(stopwatch.stop()), flush=True)
        # As abrupt as the end of the run that is timed.
        os._exit(0)

    call = inner_loop._call
    # mypy forbids to assign a function of a module.
    setattr(inner_loop, "_call", call_and_end)  # noqa: B010
    train.run(command_line.read(command_line.parse(sys.argv)))


if __name__ == "__main__":
    main()
