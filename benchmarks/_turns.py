"""Processes that stay alive and take turns: starting one costs seconds.

A process of a contestant reads numbers of steps from its standard input, a
line each, takes so many, and answers `seconds <s>`. Before the first it says
`ready`. While it waits it computes nothing.
"""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Enough to see how long a step takes; the first call warms up.
_TRIAL_STEPS = 20


class Member(NamedTuple):
    """One process of a contestant."""

    words: Sequence[str]
    """Its command line."""
    environ: Mapping[str, str]
    """All of its environment."""


class Contestant(NamedTuple):
    """Processes that take each turn together."""

    processes: Sequence[subprocess.Popen[str]]
    examples: int
    """Examples that each process works off in a step."""


@contextlib.contextmanager
def running(members: Sequence[Member], examples: int) -> Iterator[Contestant]:
    """Starts the processes of one contestant and ends them at the exit.

    Raises:
        RuntimeError: if one ends too early, with what it last said.
    """
    with contextlib.ExitStack() as stack:
        started = []
        for member in members:
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            process = subprocess.Popen(
                member.words,
                env=member.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            stack.callback(_end, process)
            started.append((process, errors))
        for process, errors in started:
            try:
                _hear(process, "ready")
            except RuntimeError as error:
                process.wait()
                errors.seek(0)
                raise RuntimeError(
                    f"{error}: {errors.read()[-2000:]}"
                ) from None
        yield Contestant([process for process, _ in started], examples)


def take(contestant: Contestant, steps: int) -> float:
    """Lets all processes take `steps` at once; returns examples/s of all."""
    for process in contestant.processes:
        if process.stdin:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
    times = [
        float(_hear(process, "seconds")) for process in contestant.processes
    ]
    return sum(steps * contestant.examples / seconds for seconds in times)


def rounds(
    contestants: Mapping[str, Contestant], seconds: float, count: int
) -> dict[str, np.ndarray]:
    """Measures each contestant once a round, in alternation.

    Args:
        contestants: By name.
        seconds: How long a turn lasts, about.
        count: Rounds.

    Returns:
        Name → examples/s, `[count]`.
    """
    steps = {}
    for name, contestant in contestants.items():
        take(contestant, _TRIAL_STEPS)
        rate = take(contestant, _TRIAL_STEPS)
        a_step = contestant.examples * len(contestant.processes)
        steps[name] = max(1, round(seconds * rate / a_step))
    rates = [
        [
            take(contestant, steps[name])
            for name, contestant in contestants.items()
        ]
        for _ in range(count)
    ]
    return dict(zip(contestants, np.array(rates).T, strict=True))


def _hear(process: subprocess.Popen[str], word: str) -> str:
    """Returns what a process says after `word`; skips its other lines."""
    for line in process.stdout or ():
        first, _, rest = line.partition(" ")
        if first.strip() == word:
            return rest
    raise RuntimeError(f"{process.args!r} ended before it said {word!r}")


def _end(process: subprocess.Popen[str]) -> None:
    # At once: a worker would wait for the others, who are to end as well.
    process.kill()
    process.communicate()
