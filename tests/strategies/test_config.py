from typing import Any

import pytest

from errors import RequestError
from strategies import StrategyConfig


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"devices": ("cpu:0", "cpu:10")},
        {"devices": ("gpu:1", "gpu:0"), "strategy": "mirrored"},
        {"strategy": "tpu", "tpu": "local"},
        {"intra_op_threads": 1, "inter_op_threads": 2},
        {"cluster": "slurm", "strategy": "multi_worker_mirrored"},
        {"collective": "ring", "strategy": "multi_worker_mirrored"},
        # Tasks of a Slurm step that are runs of their own.
        {"cluster": "tf_config", "strategy": "one_device"},
    ],
)
def test_accepts(values: dict[str, Any]) -> None:
    assert StrategyConfig(**values).devices == values.get("devices", ())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"devices": ("cpu",)}, "--devices=cpu: 'cpu' is not a device"),
        ({"devices": ("cpu:0", "")}, "--devices=cpu:0,: '' is not a device"),
        ({"devices": ("CPU:0",)}, "is not a device; write them as cpu:0,cpu"),
        ({"devices": ("cpu:00",)}, "is not a device"),
        ({"devices": ("tpu:0",)}, "is not a device"),
        ({"devices": ("cpu:1", "cpu:1")}, "--devices=cpu:1,cpu:1: .* twice"),
        ({"devices": ("cpu:0", "gpu:0")}, "CPUs and GPUs cannot be mixed"),
        ({"devices": ("cpu:0",), "strategy": "tpu"}, "every core of the TPU"),
        ({"tpu": "x"}, "--tpu=x: --strategy=one_device uses no TPU"),
        ({"computation_shape": (2, 1)}, "--computation_shape=2,1: --strategy"),
        ({"partition_dimensions": (1,)}, "--partition_dimensions=1: --strat"),
        ({"spmd_partitioning": False}, "--spmd_partitioning=False: --strat"),
        ({"tpu_topology": ("v4:2x2",)}, "--tpu_topology=v4:2x2: --strategy"),
        ({"intra_op_threads": -1}, "--intra_op_threads=-1: must be 0"),
        ({"cluster": "k8s"}, "--cluster=k8s: must be one of auto, tf_config"),
        ({"cluster": "slurm"}, "--cluster=slurm: --strategy=one_device knows"),
        ({"collective": "mpi"}, "--collective=mpi: must be one of auto, ring"),
        ({"collective": "ring"}, "--collective=ring: only --strategy=multi"),
        ({"inter_op_threads": -2}, "--inter_op_threads=-2: must be 0"),
    ],
)
def test_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        StrategyConfig(**values)
