"""What is compiled where, and what half precision may not touch."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from training import forward


def _model(synchronized: bool = False) -> keras.Model:
    inputs = keras.Input([2])
    layer = keras.layers.BatchNormalization(synchronized=synchronized)
    return keras.Model(inputs, layer(inputs))


def _strategy(device: str, replicas: int = 1) -> types.SimpleNamespace:
    extended = types.SimpleNamespace(worker_devices=(device,) * replicas)
    return types.SimpleNamespace(
        extended=extended, num_replicas_in_sync=replicas
    )


@pytest.mark.parametrize(
    ("device", "asked", "expected"),
    [
        ("/device:CPU:0", None, False),
        ("/device:CPU:0", True, True),
        ("/device:GPU:0", None, True),
        ("/device:GPU:0", False, False),
        ("/device:TPU:0", None, False),
        ("/device:TPU:0", True, False),
    ],
)
def test_the_compiler_follows_the_device(device, asked, expected) -> None:
    """A TPU compiles the whole step by itself."""
    strategy = _strategy(device)
    assert forward._compiles(strategy, _model(), asked) is expected


def test_the_compiler_and_synchronized_layers_exclude_each_other() -> None:
    model = _model(synchronized=True)
    assert forward._compiles(_strategy("GPU:0", 1), model, None)
    assert not forward._compiles(_strategy("GPU:0", 2), model, None)
    with pytest.raises(RequestError, match=r"--jit_compile: .*synchronized"):
        forward._compiles(_strategy("GPU:0", 2), model, True)


def test_half_precision_is_widened_and_nothing_else() -> None:
    dtypes = ["float16", "bfloat16", "float32", "float64", "int32"]
    wide = forward.widen([tf.zeros([], dtype) for dtype in dtypes])
    assert [tensor.dtype.name for tensor in wide] == [
        "float32",
        "float32",
        "float32",
        "float64",
        "int32",
    ]


def test_own_losses_are_summed_in_the_asked_precision() -> None:
    inputs = keras.Input([2])
    outputs = keras.layers.Dense(
        2,
        kernel_initializer="ones",
        kernel_regularizer=keras.regularizers.L2(0.25),
        bias_initializer="ones",
        bias_regularizer=keras.regularizers.L1(0.5),
    )(inputs)
    model = keras.Model(inputs, outputs)
    total = forward.own_losses(model, tf.float64)
    assert total.dtype == tf.float64
    np.testing.assert_allclose(total, 0.25 * 4 + 0.5 * 2)
    bare = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    assert forward.own_losses(bare, tf.float32).numpy() == 0.0
