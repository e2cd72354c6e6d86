import json

import pytest

from errors import RequestError
from strategies import StrategyConfig
from strategies import mirrored
from strategies import one_device
from strategies.placement.layout import Layout
from strategies.placement.layout import layouts


def no_create(config: StrategyConfig) -> None:
    raise AssertionError("nothing may be created")


def test_one_process_counts_its_replicas() -> None:
    config = StrategyConfig()
    assert layouts(config, one_device.create, {}) == [
        Layout("one_device", 1, 1, 1)
    ]
    config = StrategyConfig(strategy="mirrored", devices=("cpu:0", "cpu:1"))
    assert layouts(config, mirrored.create, {}) == [Layout("mirrored", 1, 2, 1)]


def test_other_workers_are_counted_not_met() -> None:
    cluster = {"worker": ["a:1", "b:2", "c:3"]}
    task = {"type": "worker", "index": 1}
    environ = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
    config = StrategyConfig(strategy="multi_worker_mirrored")
    assert layouts(config, no_create, environ) == [
        Layout("multi_worker_mirrored", 3, 3, 1)
    ]


def test_each_tpu_has_a_layout() -> None:
    config = StrategyConfig(
        strategy="tpu",
        tpu_topology=("v5e:2x2", "v4:2x2x1"),
        computation_shape=(2, 1, 1, 1),
    )
    assert layouts(config, no_create, {}) == [
        Layout("v5e:2x2", 1, 2, 2),
        Layout("v4:2x2x1", 1, 4, 2),
    ]


def test_a_shape_larger_than_the_tpu_is_refused() -> None:
    config = StrategyConfig(
        strategy="tpu",
        tpu_topology=("v5e:2x2",),
        computation_shape=(4, 1, 1, 1),
    )
    with pytest.raises(RequestError, match="--computation_shape=4,1,1,1"):
        layouts(config, no_create, {})
