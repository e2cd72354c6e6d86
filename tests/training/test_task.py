import types

import keras
import numpy as np
import pytest

from training import task as task_lib


def test_cross_entropy_against_numpy() -> None:
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=[5, 3]), np.array([0, 2, 1, 1, 0])
    task = task_lib.resolve(types.ModuleType("none"), "classification")
    log_sum = np.log(np.exp(logits).sum(axis=1))
    expected = log_sum - logits[np.arange(5), labels]
    received = task.per_example_loss(labels, logits)
    np.testing.assert_allclose(received, expected, rtol=1e-6)
    assert [metric.name for metric in task.make_metrics()] == ["accuracy"]


@pytest.mark.parametrize("shape", [(4, 3), (4,)], ids=str)
def test_squared_error_against_numpy(shape) -> None:
    random = np.random.default_rng(0)
    labels = random.normal(size=shape).astype(np.float32)
    outputs = random.normal(size=(4, *(shape[1:] or (1,)))).astype(np.float32)
    task = task_lib.resolve(types.ModuleType("none"), "regression")
    expected = np.square(labels.reshape(outputs.shape) - outputs).mean(axis=1)
    received = task.per_example_loss(labels, keras.ops.array(outputs))
    np.testing.assert_allclose(received, expected, rtol=1e-6)


def test_a_models_own_come_first() -> None:
    module = types.ModuleType("own")
    module.per_example_loss = lambda labels, outputs: "loss"
    module.make_metrics = lambda: "metrics"
    task = task_lib.resolve(module, "regression")
    assert task.per_example_loss(None, None) == "loss"
    assert task.make_metrics() == "metrics"


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ValueError, match="'ranking': must be one of"):
        task_lib.resolve(types.ModuleType("none"), "ranking")
