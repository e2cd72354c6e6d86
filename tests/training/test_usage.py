import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import placement
from training import usage

_LOGS = {"loss": 1.0, "steps_per_sec": 2.0, "examples_per_sec": 128.0}


class _Clock:
    """Shows a time that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passing(self, seconds: float) -> None:
        self.now += seconds


def _strategy(device: str, replicas: int = 4, local: int = 2):
    extended = SimpleNamespace(worker_devices=[device] * local)
    return SimpleNamespace(num_replicas_in_sync=replicas, extended=extended)


def test_shares_are_of_the_time_since_the_start() -> None:
    clock = _Clock()
    used = usage.Usage(_strategy("CPU:0"), clock=clock)
    used.timed("train", clock.passing)(6.0)
    used.timed("eval", clock.passing)(1.0)
    used.timed("checkpoint", clock.passing)(0.5)
    clock.passing(0.5)
    logs = used.describe(_LOGS | {"input_wait_secs": 2.0})
    assert logs["input_wait_share"] == 0.25
    assert logs["eval_share"] == 0.125
    assert logs["checkpoint_share"] == 0.0625
    assert logs["goodput"] == 0.5
    assert "input_wait_secs" not in logs
    # Once more: what was waited for adds up.
    clock.passing(8.0)
    logs = used.describe(_LOGS | {"input_wait_secs": 2.0})
    assert logs["input_wait_share"] == 0.25
    assert logs["goodput"] == 0.125


def test_time_counts_when_a_part_fails() -> None:
    clock = _Clock()
    used = usage.Usage(_strategy("CPU:0"), clock=clock)

    def fail() -> None:
        clock.passing(1.0)
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        used.timed("checkpoint", fail)()
    clock.passing(1.0)
    assert used.describe(_LOGS)["checkpoint_share"] == 0.5


def test_what_a_part_returns_is_returned() -> None:
    used = usage.Usage(_strategy("CPU:0"))
    assert used.timed("train", max)(3, 5) == 5


def test_examples_of_each_replica() -> None:
    logs = usage.Usage(_strategy("CPU:0")).describe(_LOGS)
    assert logs["examples_per_sec_per_replica"] == 32.0


def test_operations_are_those_of_all_workers() -> None:
    calls = []

    def count() -> float:
        calls.append(1)
        return 1e9

    used = usage.Usage(_strategy("CPU:0"), count)
    for _ in range(2):
        logs = used.describe(_LOGS)
    assert logs["flops_per_step"] == 2e9
    # The peak of a CPU is not known.
    assert "mfu" not in logs
    assert len(calls) == 1


@pytest.mark.parametrize("count", [None, lambda: math.nan])
def test_operations_need_not_be_known(count) -> None:
    assert "flops_per_step" not in usage.Usage(
        _strategy("CPU:0"), count
    ).describe(_LOGS)


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("v4-32", 137.5e12),
        ("v5litepod-8", 197e12),
        ("v5p-8", 229.5e12),
        ("v99-8", 0.0),
        ("", 0.0),
    ],
)
def test_peak_of_a_tpu(monkeypatch, kind, peak) -> None:
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", kind)
    assert usage.peak_flops(_strategy("/device:TPU:0")) == peak


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("Tesla V100-SXM2-16GB", 125e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 0.0),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 0.0),
    ],
)
def test_peak_of_a_gpu(monkeypatch, name, peak) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["gpu"])
    monkeypatch.setattr(
        tf.config.experimental,
        "get_device_details",
        lambda _: {"device_name": name},
    )
    assert usage.peak_flops(_strategy("/device:GPU:0")) == peak


@pytest.mark.parametrize(("devices", "mfu"), [(1, 1.0), (2, 0.5)])
def test_share_of_the_peak_of_a_tpu(monkeypatch, devices, mfu) -> None:
    """One replica is traced; its devices do two steps a second."""
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-8")
    monkeypatch.setattr(placement, "num_devices", lambda: devices)
    used = usage.Usage(_strategy("/device:TPU:0"), lambda: 197e12 / 2)
    logs = used.describe(_LOGS)
    assert logs["mfu"] == mfu
    assert logs["flops_per_step"] == 4 * 197e12 / 2


def test_share_of_the_peak_of_gpus(monkeypatch) -> None:
    """The steps of both local replicas are traced."""
    monkeypatch.setattr(usage, "peak_flops", lambda _: 1e12)
    used = usage.Usage(_strategy("/device:GPU:0"), lambda: 1e12)
    assert used.describe(_LOGS)["mfu"] == 1.0


def test_peak_memory_grows_with_what_is_held() -> None:
    before = usage.peak_memory()["peak_memory_mb"]
    held = np.ones(int(before * 1e6 / 8) + 10_000_000)
    assert usage.peak_memory()["peak_memory_mb"] > before
    assert held.size


def test_peak_memory_of_a_gpu(monkeypatch) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda _: ["gpu"])
    monkeypatch.setattr(
        tf.config.experimental,
        "get_memory_info",
        lambda _: {"current": 1, "peak": 3_000_000},
    )
    assert usage.peak_memory()["peak_gpu_memory_mb"] == 3.0
