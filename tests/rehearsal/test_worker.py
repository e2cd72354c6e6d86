"""Steps run and compiled in a child process."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.compiler.xla.experimental import xla_sharding

from errors import RunError
from rehearsal import child
from rehearsal import chips

R, P, B, K, M = 2, 2, 6, 8, 3


def _lowered() -> tuple[str, np.ndarray, np.ndarray]:
    """Returns a step that TensorFlow lowered, and its two variables."""
    random = np.random.default_rng(1)
    kernel = tf.Variable(random.normal(size=(K, M)), dtype=tf.float32)
    count = tf.Variable(5, dtype=tf.int64)

    @tf.function(jit_compile=True, autograph=False)
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        x = xla_sharding.split(x, 1, P, use_sharding_op=True)
        with tf.GradientTape() as tape, tf.name_scope("net/dense"):
            error = tf.matmul(x, kernel) - y
            loss = tf.reduce_mean(error**2)
        kernel.assign_sub(0.1 * tape.gradient(loss, kernel))
        count.assign_add(1)
        return loss

    specs = tf.TensorSpec([B, K]), tf.TensorSpec([B, M])
    captured = step.get_concrete_function(*specs).captured_inputs
    assert captured[0] is kernel.handle
    module = step.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    return module, kernel.numpy(), count.numpy()


def test_steps_of_a_lowered_step_against_numpy() -> None:
    module, kernel, count = _lowered()
    random = np.random.default_rng(2)
    arrays = {"state/0": kernel, "state/1": count}
    batches = []
    for step in range(3):
        x = random.normal(size=(R, B, K)).astype(np.float32)
        # Both replicas see one batch at first, then each its own.
        if not step:
            x[1] = x[0]
        y = np.ones([R, B, M], np.float32)
        arrays |= {f"input/{step}/0": x, f"input/{step}/1": y}
        batches.append((x, y))
    reply, results = child.run(
        {
            "kind": "execute",
            "module": module,
            "num_replicas": R,
            "num_partitions": P,
            "num_inputs": 2,
            "steps": 3,
        },
        arrays,
        timeout_secs=60,
    )
    kernels = np.stack([kernel] * R).astype(np.float64)
    for step, (x, y) in enumerate(batches):
        error = x @ kernels - y
        loss = (error**2).mean((1, 2))
        np.testing.assert_allclose(results[f"output/{step}/0"], loss, rtol=1e-5)
        gradient = 2 * np.swapaxes(x, 1, 2) @ error / (B * M)
        kernels = kernels - 0.1 * gradient
    np.testing.assert_allclose(results["state/0"], kernels[0], rtol=1e-4)
    assert results["state/1"] == 8
    assert results["state/1"].dtype == np.int64
    assert reply["replica_differences"] == pytest.approx(
        [np.abs(kernels[1] - kernels[0]).max(), 0], rel=1e-4
    )
    assert "all-reduce" in {each["kind"] for each in reply["collectives"]}
    assert {"dense"} == {
        name for each in reply["collectives"] for name in each["layers"]
    }


def _compile(module: str, topology: str = "v5e:2x2", **more: Any) -> Any:
    request = {
        "kind": "compile",
        "module": module,
        "topology": topology,
        "num_replicas": 2,
        "num_partitions": 2,
    }
    return child.run({**request, **more}, {}, timeout_secs=120)[0]


def test_a_step_compiled_for_a_tpu() -> None:
    module, _, _ = _lowered()
    reply = _compile(
        module,
        argument_names=["x", "y", "net/dense/kernel", "count"],
    )
    assert reply["fits"]
    parts = reply["memory"]
    assert reply["bytes_per_core"] == parts["total"]
    assert parts["total"] == sum(
        parts[key] * (-1 if key == "aliased" else 1)
        for key in (
            "arguments",
            "outputs",
            "aliased",
            "temporary",
            "generated_code",
        )
    )
    # At least half of x, and y and the kernel.
    assert parts["arguments"] >= 4 * (B * K // 2 + B * M + K * M)
    assert reply["bytes_available"] == chips.CHIPS["v5e"].bytes_available
    assert reply["bytes_left"] == reply["bytes_available"] - parts["total"]
    # Two products of [6, 4] by [4, 3] and back: 2 · 2 · 6 · 4 · 3 at least.
    assert reply["flops"] >= 288
    assert reply["bytes_accessed"] > 0
    assert "all-reduce" in {each["kind"] for each in reply["collectives"]}
    assert reply["largest_buffers"][0]["name"] == "x"


# Three results of 40 GB, whose layers must answer for them.
LARGE = """module @m {
 func.func public @main(%x: tensor<100000x8xf32>) -> tensor<100000x8xf32> {
  %t = stablehlo.transpose %x, dims = [1, 0] : X8 -> tensor<8x100000xf32>
  %p = stablehlo.dot_general %x, %t, DIMS : (tensor<100000x8xf32>, \
tensor<8x100000xf32>) -> BIG loc("net_1/large_1/MatMul")
  %s = stablehlo.sine %p : BIG loc("net_1/wave_1/Sin")
  %d = stablehlo.dot_general %s, %s, DIMS : (BIG, BIG) -> BIG \
loc("net_1/square_1/MatMul")
  %y = stablehlo.dot_general %d, %x, DIMS : (BIG, tensor<100000x8xf32>) -> \
tensor<100000x8xf32>
  return %y : tensor<100000x8xf32>
 }
}"""
LARGE = LARGE.replace("X8", "(tensor<100000x8xf32>)")
LARGE = LARGE.replace("BIG", "tensor<100000x100000xf32>")
LARGE = LARGE.replace("DIMS", "contracting_dims = [1] x [0]")


def test_what_does_not_fit_is_said_not_to() -> None:
    reply = _compile(LARGE)
    assert reply["fits"] is False
    assert reply["bytes_available"] == chips.CHIPS["v5e"].bytes_available
    assert reply["bytes_per_core"] > reply["bytes_available"]
    assert reply["bytes_left"] < 0
    assert "Ran out of memory" in reply["compiler_says"]
    largest = reply["largest_buffers"][:3]
    assert {each["layer"] for each in largest} == {"large", "wave", "square"}
    assert {each["bytes"] for each in largest} == {4 * 10**10}


STRANGE = """module @m {
 func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.custom_call @Strange(%x) : (tensor<4xf32>) -> tensor<4xf32> \
loc("net_1/odd_1/Strange")
  return %y : tensor<4xf32>
 }
}"""


def test_an_operation_that_a_tpu_does_not_take_is_named() -> None:
    with pytest.raises(RunError) as caught:
        _compile(STRANGE)
    assert str(caught.value) == (
        "rehearsal: v5e:2x2 does not take the step: Custom emitter for "
        "Strange not found (in net_1/odd_1/Strange)"
    )


def test_another_number_of_cores_is_refused() -> None:
    with pytest.raises(RunError, match="v5e:2x4 has 8 cores, but 2 replicas"):
        _compile(STRANGE, "v5e:2x4")


NAN_AND_COUNT = """module @m attributes {mhlo.input_output_alias = \
[{alias = {kind = "may_alias", parameter_index = array<i64>, \
parameter_number = 1 : i64}, output_index = array<i64: 0>}, \
{alias = {kind = "may_alias", parameter_index = array<i64>, \
parameter_number = 2 : i64}, output_index = array<i64: 1>}]} {
 func.func public @main(%x: tensor<i64>, %a: tensor<i64>, %b: tensor<2xf32>) \
-> (tensor<i64>, tensor<2xf32>) {
  %c = stablehlo.add %x, %a : tensor<i64>
  return %c, %b : tensor<i64>, tensor<2xf32>
 }
}"""


def test_replicas_that_differ_are_told_whatever_the_dtype() -> None:
    reply, results = child.run(
        {
            "kind": "execute",
            "module": NAN_AND_COUNT,
            "num_replicas": 2,
            "num_partitions": 1,
            "num_inputs": 1,
            "steps": 2,
        },
        {
            "input/0/0": np.array([0, 0]),
            "input/1/0": np.array([0, 1]),
            # One more is the same number in float64.
            "state/0": np.array(2**60),
            "state/1": np.array([np.nan, 1], np.float32),
        },
        timeout_secs=60,
    )
    count, nan = reply["replica_differences"]
    assert count > 0
    assert nan == 0
    assert results["state/0"] == 2**60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "cores"),
    [
        ("v2:2x2", 8),
        ("v3:2x2", 8),
        ("v4:2x2x1", 8),
        ("v5p:2x2x1", 4),
        ("v6e:2x2", 4),
        ("v5e:16x16", 256),
    ],
)
def test_the_table_has_what_the_compiler_says(
    topology: str, cores: int
) -> None:
    reply = _compile(
        LARGE.replace("100000", "1000000"),
        topology,
        num_replicas=cores,
        num_partitions=1,
    )
    assert reply["bytes_available"] == chips.of(topology).bytes_available
