import keras
import pytest
import tensorflow as tf

from training import RunConfig
from training import runtime


def _configure(seed: int = 0, eagerly: bool = False) -> None:
    runtime.configure(RunConfig(seed=seed), "float32", eagerly)


def _initial_weights() -> bytes:
    return keras.layers.Dense(3)(tf.ones([1, 2])).numpy().tobytes()


def test_seed_decides_the_weights() -> None:
    received = []
    for seed in (1, 1, 2):
        _configure(seed)
        received.append(_initial_weights())
    assert received[0] == received[1] != received[2]


def test_names_start_afresh() -> None:
    names = []
    for _ in range(2):
        _configure()
        names.append(keras.layers.Dense(1).name)
    assert names == ["dense", "dense"]


def test_names_start_again_without_another_policy() -> None:
    runtime.configure(RunConfig(), "mixed_bfloat16", False)
    names = [keras.layers.Dense(1).name]
    runtime.restart_names()
    names.append(keras.layers.Dense(1).name)
    assert names == ["dense", "dense"]
    assert keras.config.dtype_policy().name == "mixed_bfloat16"


def test_policy_and_eager_mode_hold_until_the_next_call() -> None:
    runtime.configure(RunConfig(), "mixed_bfloat16", True)
    assert keras.layers.Dense(1).compute_dtype == "bfloat16"
    assert tf.config.functions_run_eagerly()
    _configure()
    assert keras.layers.Dense(1).compute_dtype == "float32"
    assert not tf.config.functions_run_eagerly()


def test_determinism_is_asked_for(monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(
        tf.config.experimental,
        "enable_op_determinism",
        lambda: calls.append(True),
    )
    _configure()
    assert not calls
    runtime.configure(RunConfig(deterministic=True), "float32", False)
    assert calls == [True]


@pytest.fixture(autouse=True)
def _restore():
    yield
    _configure()
