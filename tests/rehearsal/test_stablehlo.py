"""StableHLO text as TensorFlow writes it."""

import re

import numpy as np
import tensorflow as tf

from rehearsal import stablehlo

MODULE = """#loc1 = loc("net_1/odd_1/Op")
#loc2 = loc(fused[#loc1, #loc3])
module @m {
  func.func public @main(%arg0: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = stablehlo.custom_call @Strange(%arg0) : (tensor<4x8xf32>) -> \
tensor<4x8xf32> loc(#loc2)
    %1 = "stablehlo.fft"(%0) : (tensor<4x8xf32>) -> \
tensor<4x5xcomplex<f32>> loc("net_1/wave_1/FFT")
    %2 = mhlo.copy %0 : tensor<4x8xf32> loc(#loc2)
    return %2 : tensor<4x8xf32>
  }
}
"""


def test_accepted_has_a_reshape_for_a_copy() -> None:
    text = stablehlo.accepted(MODULE)
    assert "mhlo" not in text
    assert (
        "%2 = stablehlo.reshape %0 : (tensor<4x8xf32>) -> tensor<4x8xf32> "
        "loc(#loc2)" in text
    )


def test_accepted_has_a_byte_for_each_boolean() -> None:
    """What TensorFlow writes today, read as jaxlib reads it."""
    mask = np.tril(np.ones([3, 13, 17], bool))

    @tf.function(jit_compile=True, autograph=False)
    def masked(x: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.constant(mask), x, 0.0)

    compiled = masked.experimental_get_compiler_ir(tf.TensorSpec(mask.shape))
    text = stablehlo.accepted(compiled(stage="stablehlo"))

    found = re.findall(r'dense<"0x(\w+)"> : tensor<3x13x17xi1>', text)
    values = np.frombuffer(bytes.fromhex(found[0]), np.uint8)
    np.testing.assert_array_equal(values.reshape(mask.shape), mask)


def test_users_of_what_a_compiler_names() -> None:
    assert stablehlo.users(MODULE, "Custom emitter for Strange not found") == [
        "net_1/odd_1/Op"
    ]
    words = "Unexpected operand type for FFT: c128[64,64]{1,0}"
    assert stablehlo.users(MODULE, words) == ["net_1/wave_1/FFT"]
    words = "failed to legalize operation 'mhlo.copy'"
    assert stablehlo.users(MODULE, words) == ["net_1/odd_1/Op"]
    assert stablehlo.users(MODULE, "Something else, a copy") == []


def test_largest() -> None:
    first, second, third = stablehlo.largest(MODULE, 3, ["features"])
    assert first["bytes"] == 4 * 5 * 8
    assert first["shape"] == "complex<f32>[4,5]"
    assert first["name"] == "net_1/wave_1/FFT"
    assert second["bytes"] == 4 * 8 * 4
    assert (second["name"], second["kind"]) == ("net_1/odd_1/Op", "uncompiled")
    assert (third["name"], third["kind"]) == ("features", "argument")


def _lowered(count: int) -> str:
    variables = [tf.Variable(tf.zeros([2])) for _ in range(count)]

    @tf.function(jit_compile=True, autograph=False)
    def step(x: tf.Tensor) -> tf.Tensor:
        for variable in variables:
            variable.assign_add(x)
        return tf.reduce_sum(x)

    spec = tf.TensorSpec([2])
    return step.experimental_get_compiler_ir(spec)(stage="stablehlo")


def test_aliases_of_what_tensorflow_writes() -> None:
    module = _lowered(2)
    assert re.search("input_output_alias", module)
    assert stablehlo.aliases(module) == {1: 1, 2: 2}
    assert stablehlo.aliases("module @m {}") == {}


def test_aliases_of_a_single_result() -> None:
    variable = tf.Variable(tf.zeros([2]))

    @tf.function(jit_compile=True, autograph=False)
    def step(x: tf.Tensor) -> None:
        variable.assign_add(x)

    spec = tf.TensorSpec([2])
    module = step.experimental_get_compiler_ir(spec)(stage="stablehlo")
    assert stablehlo.aliases(module) == {0: 1}
