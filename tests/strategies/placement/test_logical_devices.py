"""The annotations of the real `TPUStrategy`'s code, read in StableHLO."""

import pytest
import tensorflow as tf

from errors import RequestError
from rehearsal.replicas import StandInStrategy
from strategies import StrategyConfig
from strategies.placement import logical_devices
from strategies.placement.logical_devices import LogicalDevices


def lowered(place: str, *arguments: object) -> str:
    """Returns the StableHLO of one operation on `[2, 4, 8]`."""
    devices = LogicalDevices(StandInStrategy(1, 4, spmd=False), 4)
    function = tf.function(
        lambda x: getattr(devices, place)(x, *arguments), jit_compile=True
    )
    make = function.experimental_get_compiler_ir(tf.TensorSpec([2, 4, 8]))
    return make(stage="stablehlo")


@pytest.mark.parametrize(
    ("place", "arguments", "sharding"),
    [
        ("split", [(1, 2, 2)], "{devices=[1,2,2]0,1,2,3}"),
        ("split", [(1, 4, 1)], "{devices=[1,4,1]0,1,2,3}"),
        ("replicate", [], "{replicated}"),
        ("assign", [3], "{maximal device=3}"),
    ],
)
def test_tensors_are_annotated(
    place: str, arguments: list[object], sharding: str
) -> None:
    assert f'mhlo.sharding = "{sharding}"' in lowered(place, *arguments)


def test_one_program_for_all_assigns_nothing() -> None:
    devices = LogicalDevices(StandInStrategy(1, 4), 4)
    with pytest.raises(RequestError, match="--nospmd_partitioning"):
        devices.assign(tf.zeros([]), 1)


def test_one_device_places_nothing() -> None:
    config = StrategyConfig(strategy="tpu", computation_shape=(1, 1, 1, 1))
    assert logical_devices.create(None, config) is None
    assert logical_devices.create(None, StrategyConfig()) is None


def test_the_shape_of_a_replica_decides_the_devices() -> None:
    config = StrategyConfig(
        strategy="tpu",
        computation_shape=(2, 2, 1, 1),
        partition_dimensions=(1, 2, 2, 1),
    )
    devices = logical_devices.create("strategy", config)
    assert devices == LogicalDevices("strategy", 4, (1, 2, 2, 1))


def test_every_feature_must_fit() -> None:
    config = StrategyConfig(
        strategy="tpu",
        computation_shape=(2, 1, 1, 1),
        partition_dimensions=(1, 2),
    )
    fits = tf.TensorSpec([None, 4])
    logical_devices.check_features(config, {"a": fits})
    with pytest.raises(RequestError, match="do not divide dimension 1"):
        logical_devices.check_features(
            config, {"a": fits, "b": tf.TensorSpec([None, 5])}
        )
