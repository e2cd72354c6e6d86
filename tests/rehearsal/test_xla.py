"""Programs run split over devices, against NumPy; all in child processes."""

from importlib import metadata

import numpy as np
import pytest

from errors import RunError
from rehearsal import child

R, P = 2, 4


def test_versions_that_the_private_parts_were_seen_in() -> None:
    """With another version, run this file and then name it here."""
    found = [metadata.version(name) for name in ("jax", "jaxlib", "libtpu")]
    assert found == ["0.10.2", "0.10.2", "0.0.42.1"]


def _sharded(name: str, of: str, shape: str, sharding: str) -> str:
    return (
        f"%{name} = stablehlo.custom_call @Sharding(%{of}) "
        f'{{backend_config = "", mhlo.sharding = "{sharding}"}} : '
        f"(tensor<{shape}>) -> tensor<{shape}>\n"
    )


# y = x @ w summed over replicas, with both operands and the result split.
MATMUL = (
    "module @m {\n func.func public @main(%x: tensor<4x6xf64>, "
    "%w: tensor<6x8xf64>, %n: tensor<i64>) -> "
    "(tensor<4x8xf64>, tensor<i64>, tensor<6x8xf64>) {\n"
    + _sharded("xs", "x", "4x6xf64", "{devices=[2,2]0,1,2,3}")
    + _sharded(
        "ws",
        "w",
        "6x8xf64",
        "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}",
    )
    + """%y = stablehlo.dot_general %xs, %ws, contracting_dims = [1] x [0] :
  (tensor<4x6xf64>, tensor<6x8xf64>) -> tensor<4x8xf64>
 %s = "stablehlo.all_reduce"(%y) <{
   replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
   %c = stablehlo.add %a, %b : tensor<f64>
   stablehlo.return %c : tensor<f64>
 }) : (tensor<4x8xf64>) -> tensor<4x8xf64>
"""
    + _sharded("ss", "s", "4x8xf64", "{devices=[1,4]3,2,1,0}")
    + """%m = stablehlo.add %n, %n : tensor<i64>
 return %ss, %m, %ws : tensor<4x8xf64>, tensor<i64>, tensor<6x8xf64>
 }
}"""
)


def test_arguments_and_results_are_split_as_annotated() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(R, 4, 6))
    w = random.normal(size=(R, 6, 8))
    n = np.array([2**40 + 1, -3])
    reply, results = child.run(
        {
            "kind": "execute",
            "module": MATMUL,
            "num_replicas": R,
            "num_partitions": P,
            "num_inputs": 3,
            "steps": 1,
        },
        {"input/0/0": x, "input/0/1": w, "input/0/2": n},
        timeout_secs=60,
    )
    expected = np.stack([(x @ w).sum(0)] * R)
    np.testing.assert_allclose(results["output/0/0"], expected, rtol=1e-12)
    np.testing.assert_array_equal(results["output/0/1"], 2 * n)
    np.testing.assert_array_equal(results["output/0/2"], w)
    kinds = {each["kind"] for each in reply["collectives"]}
    # Within a replica, to sum over the split axis of the product; and over
    # replicas.
    assert "all-reduce" in kinds


def test_what_is_assigned_to_one_device_comes_back() -> None:
    module = (
        "module @m { func.func public @main(%x: tensor<4x4xf32>) -> "
        "(tensor<4x4xf32>, tensor<4x4xf32>) {\n"
        + _sharded("a", "x", "4x4xf32", "{maximal device=1}")
        + """%p = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] :
          (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
        """
        + _sharded("b", "p", "4x4xf32", "{maximal device=1}")
        + _sharded("c", "b", "4x4xf32", "{replicated}")
        + "return %b, %c : tensor<4x4xf32>, tensor<4x4xf32> } }"
    )
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    _, results = child.run(
        {
            "kind": "execute",
            "module": module,
            "num_replicas": 1,
            "num_partitions": 2,
            "num_inputs": 1,
            "steps": 1,
        },
        {"input/0/0": x},
        timeout_secs=60,
    )
    np.testing.assert_array_equal(results["output/0/0"], x @ x)
    np.testing.assert_array_equal(results["output/0/1"], x @ x)


def test_an_axis_that_does_not_split_is_refused() -> None:
    module = (
        "module @m { func.func public @main(%x: tensor<5xf32>) -> "
        "tensor<5xf32> {\n"
        + _sharded("y", "x", "5xf32", "{devices=[2]0,1}")
        + "return %y : tensor<5xf32> } }"
    )
    with pytest.raises(RunError, match="axis of 5 does not split into 2"):
        child.run(
            {
                "kind": "execute",
                "module": module,
                "num_replicas": 1,
                "num_partitions": 2,
                "num_inputs": 1,
                "steps": 1,
            },
            {"input/0/0": np.zeros([1, 5], np.float32)},
            timeout_secs=60,
        )
