"""Starts several workers on this machine and keeps their job going.

    python launch.py --num_workers=4 -- --model=cnn --train_steps=5000

What stands after `--` are flags of `train.py`. When a worker fails, all are
ended and started again from the newest checkpoint. SIGTERM, SIGINT and SIGHUP
are passed on as SIGTERM, so that the workers save and stop.

Exit codes: 0 all are done; 1 the job failed; 2 wrong request; 42 interrupted.
"""

import argparse
import contextlib
import functools
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from data import DataConfig
from errors import INTERRUPTED
from errors import RequestError
from strategies.cluster import loopback
from strategies.cluster import restart
from strategies.cluster import worker_process
from strategies.cluster.worker_process import WorkerProcess


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, as `train.py` does."""

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message}; see --help.")


def main(argv: Sequence[str], program: str = "train.py") -> int:
    """Runs the job to its end; returns the exit code.

    Args:
        argv: What stands on the command line after `launch.py`.
        program: What the workers run, from the root of the repository.
    """
    os.chdir(Path(__file__).resolve().parent)
    try:
        options, words = read(argv)
        if options.isolate_network == "true":
            loopback.isolate()
    except RequestError as error:
        print(f"launch.py: {error}", file=sys.stderr)
        return 2
    command = [sys.executable, program, *words]
    with _caught_signals() as signalled:
        return _keep_going(options, command, signalled)


def read(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the launcher's flags and the words for the workers.

    Among the first are the workers' `model_dir` and `global_batch_size`.

    Raises:
        RequestError: for what is not understood or out of range.
    """
    end = list(argv).index("--") if "--" in argv else len(argv)
    is_help = bool({"-h", "--help"} & set(argv[:end]))
    if end == len(argv) and not is_help:
        raise RequestError(
            "-- is missing: it stands before the flags of train.py, as in "
            "python launch.py --num_workers=2 -- --model=mlp."
        )
    options = _read_own(argv[:end])
    words = list(argv[end + 1 :])
    known = _read_known(words)
    if not known.strategy:
        words.insert(0, "--strategy=multi_worker_mirrored")
    if not known.model_dir:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        known.model_dir = f"runs/launch-{stamp}-{os.getpid()}"
        words.insert(0, f"--model_dir={known.model_dir}")
    if "://" in known.model_dir:
        raise RequestError(
            f"--model_dir={known.model_dir}: the workers' logs are kept there; "
            "give a folder of this machine."
        )
    return argparse.Namespace(**vars(known) | vars(options)), words


def _read_own(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        "launch.py",
        "python launch.py --num_workers=N [flags] -- [flags of train.py]",
        allow_abbrev=False,
    )
    for name, default, text in (
        ("num_workers", 0, "Workers to start; must be given."),
        ("min_workers", 0, "Fewest to go on with if one is lost; all."),
        ("max_restarts", 3, "Starts after failures; 3."),
        ("grace_secs", 60.0, "Time to stop in after a signal; 60."),
    ):
        kind = type(default)
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    add = functools.partial(
        parser.add_argument, nargs="?", const="true", choices=("true", "false")
    )
    add("--pin", default="true", help="Share out the cores; true.")
    add("--isolate_network", default="false", help="Shut others out; false.")
    options = parser.parse_args(argv)
    options.min_workers = options.min_workers or options.num_workers
    for name, least, most in (
        ("num_workers", 1, math.inf),
        ("min_workers", 1, options.num_workers),
        ("max_restarts", 0, math.inf),
        ("grace_secs", 0, math.inf),
    ):
        value = getattr(options, name)
        if not least <= value <= most:
            raise RequestError(
                f"--{name}={value}: must be at least {least}"
                f"{f' and at most {most}' if most < math.inf else ''}."
            )
    return options


def _read_known(words: Sequence[str]) -> argparse.Namespace:
    """Reads those flags of the workers that matter here."""
    parser = _Parser("launch.py", allow_abbrev=False, add_help=False)
    for name, default in (
        ("strategy", ""),
        ("model_dir", ""),
        ("flagfile", ""),
        ("global_batch_size", DataConfig.global_batch_size),
    ):
        # absl takes one dash as well as two.
        names = (f"--{name}", f"-{name}")
        parser.add_argument(*names, type=type(default), default=default)
    known, _ = parser.parse_known_args(words)
    if known.flagfile:
        with contextlib.suppress(OSError):  # the workers will refuse it
            lines = Path(known.flagfile).read_text().splitlines()
            known, _ = parser.parse_known_args([*lines, *words])
    return known


def _keep_going(
    options: argparse.Namespace,
    command: Sequence[str],
    signalled: Sequence[float],
) -> int:
    """Starts the job as often as it takes; returns the exit code."""
    num_workers, restarts_left = options.num_workers, options.max_restarts
    before = None
    while True:
        codes = _run(options, num_workers, command, signalled)
        if not any(codes.values()):
            return 0
        if 2 in codes.values():
            return 2
        if signalled:
            _say(f"interrupted; --model_dir={options.model_dir} continues it.")
            return INTERRUPTED
        if set(codes.values()) <= {0, INTERRUPTED}:
            _say("the workers were interrupted; starting them again.")
            continue
        failure = restart.describe(codes, options.model_dir)
        plan = restart.plan(
            failure,
            before,
            num_workers=num_workers,
            min_workers=options.min_workers,
            global_batch_size=options.global_batch_size,
            restarts_left=restarts_left,
        )
        _say(f"{failure}; {plan.reason}.")
        if not plan.num_workers:
            return 1
        before = failure if plan.num_workers == num_workers else None
        num_workers, restarts_left = plan.num_workers, restarts_left - 1


def _run(
    options: argparse.Namespace,
    num_workers: int,
    command: Sequence[str],
    signalled: Sequence[float],
) -> dict[int, int]:
    """Runs all workers once; returns their exit codes as they ended."""
    workers: list[WorkerProcess] = []
    with contextlib.ExitStack() as stack:
        ports = stack.enter_context(loopback.reserve_ports(num_workers))
        _say(f"{num_workers} workers; all is in {options.model_dir}, logs/ too")
        if options.isolate_network == "false":
            _say(
                f"TensorFlow listens at ports {ports} on every interface "
                "without authentication; --isolate_network shuts others out."
            )
        for index, config in enumerate(loopback.tf_configs(ports)):
            cores = loopback.share_of_cores(index, num_workers)
            try:
                worker = WorkerProcess(
                    index,
                    command,
                    environ={"TF_CONFIG": config, "LAUNCHED": str(num_workers)},
                    cores=cores if options.pin == "true" else (),
                    log=Path(options.model_dir, "logs", f"worker-{index}.log"),
                    echo=_print,
                )
            except OSError as error:
                _say(f"worker {index}: {error}")
                return {index: restart.NOT_STARTED}
            stack.callback(worker.close)
            workers.append(worker)
        return worker_process.watch(workers, signalled, options.grace_secs)


@contextlib.contextmanager
def _caught_signals() -> Iterator[list[float]]:
    """Gives a list that gets the time of each signal while inside."""
    times: list[float] = []
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    # nohup has it ignored, and a shell SIGINT in the background.
    caught = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]
    for number in caught:
        signal.signal(number, lambda *_: times.append(time.monotonic()))
    yield times
    # Python, as it ends, would let the next one change the exit code.
    for number in caught:
        signal.signal(number, signal.SIG_IGN)


def _say(text: str) -> None:
    _print(f"launch.py: {text}".encode())


def _print(line: bytes) -> None:
    """Prints a line at once, whole."""
    try:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        # The terminal is gone, or the reader of the pipe: the job goes on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
