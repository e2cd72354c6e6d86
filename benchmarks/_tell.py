"""A callback that tells where a run is, and how much memory it holds.

    python train.py --callbacks=progress,summaries,benchmarks._tell

Each loop's last step gives one line, `told STEP MEGABYTES`.
"""

from pathlib import Path
from typing import Any

import keras

from training import callbacks


def make(context: callbacks.Context) -> keras.callbacks.Callback:
    """Returns the callback; see `training.callbacks`."""
    del context
    return _Tell()


def read(line: str) -> tuple[int, float] | None:
    """Returns step and megabytes, if `line` is one of these."""
    words = line.split()
    # What the progress line leaves without an end comes before it.
    if len(words) < 3 or words[-3] != "told":
        return None
    return int(words[-2]), float(words[-1])


def resident_mb() -> float:
    """Returns the memory of this process that is in RAM now, on Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class _Tell(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        print(f"\ntold {batch} {resident_mb():.1f}", flush=True)
