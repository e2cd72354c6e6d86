"""A training in processes of its own that is hit and started again.

Every process leads a group of its own and writes to a log; nothing here waits
without a deadline, and `close` leaves none of them behind.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path

from tests import processes
from tests.chaos import waiting
from tests.chaos.hosts import Host
from tests.chaos.places import FLAGS
from tests.chaos.places import Place

_RESUMED = re.compile(r"(?:Starting|Continuing|Already) at step (\d+)")
_LAUNCHED = "workers; all is in"
_LAUNCHER = "launcher"
_TAIL_BYTES = 4096


class Job:
    """One training in one folder.

    Args:
        place: Where it runs.
        model_dir: Its folder. Logs are kept beside `logs`, a prefix.
        logs: What the names of the logs begin with.
        flags: More flags of `train.py`.
        hosts: Of each worker; empty: this one.
    """

    def __init__(
        self,
        place: Place,
        model_dir: Path,
        logs: Path,
        flags: Sequence[str] = (),
        hosts: Sequence[Host] = (),
    ) -> None:
        self.place = place
        self.model_dir = model_dir
        self.began = 0.0
        """Time of the last start, as in metrics.jsonl."""
        self._logs = logs
        self.hosts = hosts
        self.flags = [
            *FLAGS,
            *place.flags,
            *flags,
            f"--train_steps={place.steps}",
            f"--model_dir={model_dir}",
        ]
        self._popen: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0
        self._launches = 1

    def start(self) -> None:
        """Starts all processes; those of the start before must be gone."""
        self.close()
        self._starts += 1
        self._launches = 1
        self.began = time.time()
        clean = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
        for name, command, environ in self._commands():
            with self._log(name).open("wb") as log:
                self._popen[name] = subprocess.Popen(
                    command,
                    cwd=processes.ROOT,
                    env={**clean, "PYTHONUNBUFFERED": "1", **environ},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def go_on(self) -> None:
        """Starts again, if the launcher does not do so by itself."""
        waiting.wait(self._has_gone_on, self.place.timeout_secs)
        if self.is_over() or not self.place.is_launched:
            self.start()
            return
        self._launches, self.began = self._count_launches(), time.time()

    def close(self) -> None:
        """Ends what still runs."""
        for name, process in self._popen.items():
            pids = [process.pid]
            if name == _LAUNCHER and process.poll() is None:
                # Stopped, it starts no others in the meantime.
                os.kill(process.pid, signal.SIGSTOP)
                pids += self._children()
            for pid in pids if process.poll() is None else ():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            process.wait()
        self._popen = {}

    def workers(self) -> dict[str, int]:
        """Returns name → process id of the workers that have been started."""
        if not self.place.is_launched:
            return {name: each.pid for name, each in self._popen.items()}
        return {f"worker {i}": pid for i, pid in enumerate(self._children())}

    def launcher(self) -> dict[str, int]:
        """Returns name → process id of the launcher, if there is one."""
        popen = self._popen.get(_LAUNCHER)
        return {_LAUNCHER: popen.pid} if popen else {}

    def codes(self) -> dict[str, int | None]:
        """Returns the exit codes of what this object has started."""
        return {name: each.poll() for name, each in self._popen.items()}

    def is_over(self) -> bool:
        """Whether all has ended."""
        return None not in self.codes().values()

    def is_done(self) -> bool:
        """Whether the training has come to its end."""
        first = self.codes().get(_LAUNCHER, self.codes().get("worker 0"))
        return first == 0

    def output(self, name: str = "") -> str:
        """Returns what a process, or all, has printed since the last start."""
        names = [name] if name else list(self._popen)
        text = "".join(
            self._log(each).read_text(errors="replace") for each in names
        )
        # The launcher may have started the next ones by now.
        parts = text.split(_LAUNCHED)
        return parts[self._launches] if len(parts) > self._launches else text

    def resumed(self) -> int | None:
        """Returns the step from which the last start goes on, once it says."""
        match = _RESUMED.search(self.output())
        return int(match[1]) if match else None

    def lines(self, since: float = 0.0) -> list[tuple[int, float]]:
        """Returns step and time of the whole lines of metrics.jsonl."""
        try:
            text = (self.model_dir / "metrics.jsonl").read_text()
        except OSError:
            return []
        return [each for each in _parse(text) if each[1] >= since]

    def step(self) -> int:
        """Returns the last step of this start; 0: none yet."""
        try:
            with (self.model_dir / "metrics.jsonl").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return 0
        return max(
            (s for s, when in _parse(text) if when >= self.began), default=0
        )

    def checkpoints(self) -> list[int]:
        """Returns the steps of those that have their marker, oldest first."""
        names = self.saved_names()
        found = [re.fullmatch(r"step-(\d+)\.json", name) for name in names]
        return sorted(int(match[1]) for match in found if match)

    def saved_names(self) -> list[str]:
        """Returns the names in the folder of the checkpoints."""
        try:
            return os.listdir(self.model_dir / "checkpoints")
        except FileNotFoundError:
            return []

    def _commands(self) -> Iterator[tuple[str, list[str], dict[str, str]]]:
        train = [sys.executable, "train.py", *self.flags]
        count = self.place.num_workers
        if self.place.is_launched:
            own = [f"--num_workers={count}", "--max_restarts=1000", "--"]
            command = [sys.executable, "launch.py", *own, *self.flags]
            yield _LAUNCHER, command, {}
        elif count == 1:
            yield "worker 0", train, {}
        elif self.hosts:
            cluster = {"worker": [host.address for host in self.hosts]}
            for i, host in enumerate(self.hosts):
                task = {"type": "worker", "index": i}
                config = json.dumps({"cluster": cluster, "task": task})
                yield (
                    f"worker {i}",
                    [*host.command(), *train],
                    {"TF_CONFIG": config},
                )
        else:
            for i, config in enumerate(processes.tf_configs(count)):
                yield f"worker {i}", train, {"TF_CONFIG": config}

    def _log(self, name: str) -> Path:
        name = name.replace(" ", "-")
        return Path(f"{self._logs}-{self._starts}-{name}.log")

    def _has_gone_on(self) -> bool:
        if self.is_over() or not self.place.is_launched:
            return self.is_over()
        return self._count_launches() > self._launches

    def _count_launches(self) -> int:
        return self._log(_LAUNCHER).read_text().count(_LAUNCHED)

    def _children(self) -> list[int]:
        pid = self._popen[_LAUNCHER].pid
        try:
            text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except OSError:
            return []
        return [int(word) for word in text.split()]


def _parse(text: str) -> list[tuple[int, float]]:
    """Returns step and time of each line that is whole."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            values = json.loads(line)
            found.append((values["step"], values["time"]))
    return found
