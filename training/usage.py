"""What a run makes of its machine: shares of time, operations, memory."""

import collections
import functools
import math
import os
import re
import resource
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import placement

Logs = dict[str, float]

# Words of a device's name → its bfloat16 or float16 products a second, dense,
# as the data sheets have them. Of a TPU: one device of TensorFlow, which is a
# core up to v3, v4 and v5p included, and a chip of v5e and v6e.
_PEAKS = {
    "V100": 125e12,
    "T4": 65e12,
    "A100": 312e12,
    "L4": 121e12,
    "A10": 125e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "v2": 22.5e12,
    "v3": 61.5e12,
    "v4": 137.5e12,
    "v5litepod": 197e12,
    "v5p": 229.5e12,
    "v6e": 918e12,
}


class Usage:
    """Keeps the time since it was made."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        count_flops: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the clock.

        Args:
            strategy: Where the run is.
            count_flops: Returns the operations of a step as `flops.count`
                does; called once, after the first inner loop.
            clock: Returns seconds.
        """
        self._strategy = strategy
        self._count_flops = functools.cache(count_flops or (lambda: math.nan))
        self._clock = clock
        self._start = clock()
        self._seconds: dict[str, float] = collections.defaultdict(float)
        self._peak = peak_flops(strategy)
        # A step for a TPU is traced once, not for each replica.
        devices = strategy.extended.worker_devices
        self._num_counted = 1 if "TPU" in devices[0] else len(devices)

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `call`, its time being counted as that of `part`."""

        def timed(*args: Any) -> Any:
            start = self._clock()
            try:
                return call(*args)
            finally:
                self._seconds[part] += self._clock() - start

        return timed

    def describe(self, logs: Logs) -> Logs:
        """Returns what an inner loop reports, with what follows from it.

        Shares are of the time since the start, `goodput` the one of steps that
        do not wait for input. `mfu` is there if the device's peak is known.

        Args:
            logs: From `inner_loop.make_train`; `input_wait_secs` in it is
                used up.
        """
        logs = dict(logs)
        replicas = self._strategy.num_replicas_in_sync
        self._seconds["input_wait"] += logs.pop("input_wait_secs", 0.0)
        each = logs["examples_per_sec"] / replicas
        logs["examples_per_sec_per_replica"] = each
        flops = self._count_flops() / self._num_counted
        if not math.isnan(flops):
            logs["flops_per_step"] = flops * replicas
            if self._peak:
                peak = self._peak * placement.num_devices()
                logs["mfu"] = flops * logs["steps_per_sec"] / peak
        elapsed = self._clock() - self._start
        for part in ("input_wait", "eval", "checkpoint"):
            logs[f"{part}_share"] = self._seconds[part] / elapsed
        stepped = self._seconds["train"] - self._seconds["input_wait"]
        logs["goodput"] = stepped / elapsed
        return logs | peak_memory()


def peak_flops(strategy: tf.distribute.Strategy) -> float:
    """Returns the peak of one device, operations a second; 0: not known."""
    device = strategy.extended.worker_devices[0]
    if "TPU" in device:
        name = os.environ.get("TPU_ACCELERATOR_TYPE", "")
    elif "GPU" in device:
        gpu = tf.config.list_physical_devices("GPU")[0]
        details = tf.config.experimental.get_device_details(gpu)
        name = details.get("device_name", "")
    else:
        return 0.0
    if "MIG" in name:  # a slice of the device
        return 0.0
    found = [key for key in _PEAKS if re.search(rf"\b{key}\b", name)]
    return _PEAKS[max(found, key=len)] if found else 0.0


def peak_memory() -> Logs:
    """Returns the most MB that this process, and its first GPU, ever held."""
    # Linux counts in kB of 1024 bytes.
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"peak_memory_mb": resident / 1e6}
    if tf.config.list_logical_devices("GPU"):
        held = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        found["peak_gpu_memory_mb"] = held / 1e6
    return found
