import pytest
import tensorflow as tf

from errors import RequestError
from strategies import StrategyConfig
from strategies import _devices
from strategies import one_device


@pytest.mark.parametrize(
    ("devices", "expected"), [(("cpu:0",), "CPU:0"), (("cpu:2",), "CPU:2")]
)
def test_runs_on_named_device(devices: tuple[str, ...], expected: str) -> None:
    strategy = one_device.create(StrategyConfig(devices=devices))
    assert strategy.num_replicas_in_sync == 1
    with strategy.scope():
        variable = tf.Variable(1.0)
    assert variable.device.endswith(expected)


def test_takes_first_gpu_or_else_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []
    monkeypatch.setattr(tf.distribute, "OneDeviceStrategy", devices.append)
    for found in (["GPU:0", "GPU:1"], ["CPU:0"]):
        monkeypatch.setattr(_devices, "resolve", lambda _, found=found: found)
        one_device.create(StrategyConfig())
    assert devices == ["GPU:0", "CPU:0"]


def test_refuses_several_devices() -> None:
    message = "--devices=cpu:0,cpu:1: --strategy=one_device takes one device"
    with pytest.raises(RequestError, match=message):
        one_device.create(StrategyConfig(devices=("cpu:0", "cpu:1")))


def test_refuses_absent_gpu() -> None:
    with pytest.raises(RequestError, match="there is no gpu:63"):
        one_device.create(StrategyConfig(devices=("gpu:63",)))
