"""In this process the runtime has started with four logical CPUs."""

from typing import Any

import pytest
import tensorflow as tf

from errors import RequestError
from strategies import StrategyConfig
from strategies import _devices
from tests import processes


@pytest.fixture(autouse=True)
def _started() -> None:
    assert len(tf.config.list_logical_devices("CPU")) == 4


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[tf.config.PhysicalDevice]:
    """Makes TensorFlow list two GPUs."""
    gpus = [
        tf.config.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU")
        for i in range(2)
    ]
    cpus = tf.config.list_physical_devices("CPU")
    monkeypatch.setattr(
        tf.config,
        "list_physical_devices",
        lambda kind: gpus if kind == "GPU" else cpus,
    )
    return gpus


def _run(program: str) -> str:
    """Runs a program in a process whose TensorFlow has not started."""
    result = processes.run(
        "import tensorflow as tf\n"
        "from strategies import StrategyConfig, _devices\n" + program,
        program="-c",
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ("devices", "expected"),
    [((), ["CPU:0"]), (("cpu:3", "cpu:1"), ["CPU:3", "CPU:1"])],
)
def test_resolves_without_gpu(
    monkeypatch: pytest.MonkeyPatch,
    devices: tuple[str, ...],
    expected: list[str],
) -> None:
    monkeypatch.setattr(_devices, "_gpus", list)
    config = StrategyConfig(devices=devices)
    assert _devices.resolve(config) == expected


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ((), ["GPU:0", "GPU:1"]),
        (("gpu:1",), ["GPU:1"]),
        (("cpu:0",), ["CPU:0"]),
    ],
)
def test_resolves_with_gpus(
    devices: tuple[str, ...], expected: list[str]
) -> None:
    config = StrategyConfig(devices=devices)
    assert _devices.resolve(config) == expected


@pytest.mark.usefixtures("two_gpus")
def test_refuses_absent_gpu_and_says_which_exist() -> None:
    config = StrategyConfig(devices=("gpu:1", "gpu:2"))
    message = "no gpu:2; this machine has cpu:0, gpu:0, gpu:1"
    with pytest.raises(RequestError, match=message):
        _devices.resolve(config)


def test_repeating_what_is_set_changes_nothing() -> None:
    for devices in ((), ("cpu:0",), ("cpu:1", "cpu:3")):
        _devices.configure(StrategyConfig(devices=devices))
    assert len(tf.config.list_logical_devices("CPU")) == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"devices": ("cpu:4",)}, "--devices=cpu:4: TensorFlow already runs"),
        ({"intra_op_threads": 3}, "--intra_op_threads=3: TensorFlow already"),
        ({"inter_op_threads": 3}, "--inter_op_threads=3: TensorFlow already"),
    ],
)
def test_refuses_change_after_start(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message + ".* new process"):
        _devices.configure(StrategyConfig(**values))


def test_splits_cpu_and_sets_threads_before_start() -> None:
    out = _run(
        "config = StrategyConfig(devices=('cpu:0', 'cpu:2'),\n"
        "                        intra_op_threads=1, inter_op_threads=3)\n"
        "_devices.configure(config)\n"
        "print(len(tf.config.list_logical_devices('CPU')))\n"
        "_devices.configure(config)\n"
        "print(tf.config.threading.get_intra_op_parallelism_threads())\n"
        "print(tf.config.threading.get_inter_op_parallelism_threads())\n"
    )
    assert out.split() == ["3", "1", "3"]


def test_does_not_start_the_runtime() -> None:
    """Or a later split, or a strategy of several workers, would fail."""
    out = _run(
        "import importlib, pkgutil, strategies\n"
        "for module in pkgutil.walk_packages(strategies.__path__,\n"
        "                                    'strategies.'):\n"
        "    importlib.import_module(module.name)\n"
        "_devices.configure(StrategyConfig(intra_op_threads=1))\n"
        "_devices.resolve(StrategyConfig())\n"
        "_devices.show_named_gpus(StrategyConfig(devices=('cpu:0',)))\n"
        "_devices.configure(StrategyConfig(devices=('cpu:0', 'cpu:1')))\n"
        "print(len(tf.config.list_logical_devices('CPU')))\n"
    )
    assert out.split() == ["2"]


@pytest.mark.parametrize(
    ("devices", "visible"),
    [(("gpu:1",), [1]), (("gpu:1", "gpu:0"), [0, 1]), (("cpu:0",), [])],
)
def test_shows_named_gpus_only(
    monkeypatch: pytest.MonkeyPatch,
    two_gpus: list[tf.config.PhysicalDevice],
    devices: tuple[str, ...],
    visible: list[int],
) -> None:
    calls: list[tuple[object, str]] = []
    monkeypatch.setattr(
        tf.config, "set_visible_devices", lambda *call: calls.append(call)
    )
    _devices.show_named_gpus(StrategyConfig(devices=devices))
    assert calls == [([two_gpus[i] for i in visible], "GPU")]


def test_hides_nothing_if_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(tf.config, "set_visible_devices")
    _devices.show_named_gpus(StrategyConfig())


def test_refuses_hiding_after_start(
    monkeypatch: pytest.MonkeyPatch,
    two_gpus: list[tf.config.PhysicalDevice],
) -> None:
    def set_visible_devices(devices: object, kind: str) -> None:
        raise RuntimeError("cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "set_visible_devices", set_visible_devices)
    with pytest.raises(RequestError, match="--devices=gpu:0: TensorFlow alr"):
        _devices.show_named_gpus(StrategyConfig(devices=("gpu:0",)))
