from typing import Any

import pytest

from errors import RequestError
from strategies import StrategyConfig
from strategies.placement import check


def _config(**values: Any) -> StrategyConfig:
    return StrategyConfig(strategy="tpu", **values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"computation_shape": (1, 1, 1, 1)},
        {"computation_shape": (2, 2, 1, 1)},
        {"partition_dimensions": (1, 1)},
        {"spmd_partitioning": False},
        {"spmd_partitioning": False, "partition_dimensions": (1, 1)},
        # The batch may be split too.
        {"computation_shape": (2, 1, 1, 1), "partition_dimensions": (2, 1)},
        {"computation_shape": (2, 1, 1, 1), "spmd_partitioning": False},
        {
            "computation_shape": (2, 2, 1, 1),
            "partition_dimensions": (1, 2, 2, 1),
            "spmd_partitioning": True,
            "tpu_topology": ("v5e:2x4", "v4:2x2x1"),
        },
    ],
)
def test_takes(values: dict[str, Any]) -> None:
    check.check(_config(**values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"computation_shape": (2, 1, 1)}, "=2,1,1: has 3 entries, but must"),
        ({"computation_shape": (0, 1, 1, 1)}, "=0,1,1,1: 0 cores along"),
        ({"computation_shape": (1, 1, -2, 1)}, "=1,1,-2,1: -2 cores along"),
        ({"partition_dimensions": (1, 0)}, "=1,0: 0 parts of a dimension"),
        (
            {"partition_dimensions": (1, 2)},
            "by --computation_shape=1,1,1,1 .* are 1;",
        ),
        (
            {
                "computation_shape": (2, 2, 1, 1),
                "partition_dimensions": (1, 2, 1, 1),
            },
            "=1,2,1,1: makes 2 parts, but by --computation_shape=2,2,1,1 the "
            "cores of a replica are 4",
        ),
        ({"spmd_partitioning": True}, "a replica has 1 core"),
        (
            {
                "computation_shape": (2, 1, 1, 1),
                "partition_dimensions": (1, 2),
                "spmd_partitioning": False,
            },
            "--nospmd_partitioning leaves 2 parts",
        ),
        ({"tpu_topology": ("v5e:2x2", "v5e:2x2")}, "one is named twice"),
        ({"tpu_topology": ("v5e:2x2", "v5e")}, "--tpu_topology=v5e: is not"),
        (
            {
                "computation_shape": (4, 1, 1, 1),
                "tpu_topology": ("v5e:4x4", "v5e:2x2"),
            },
            "needs 4 along axis 0, but .* 2x2x1x1, has 2",
        ),
    ],
)
def test_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        check.check(_config(**values))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, False),
        ({"computation_shape": (1, 1, 1, 1)}, False),
        ({"computation_shape": (1, 1, 1, 2)}, True),
        (
            {"computation_shape": (1, 1, 1, 2), "spmd_partitioning": False},
            False,
        ),
    ],
)
def test_spmd_is_on_where_a_replica_has_several_cores(
    values: dict[str, Any], expected: bool
) -> None:
    assert check.uses_spmd(_config(**values)) is expected
