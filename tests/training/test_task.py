import types

import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from training import task as task_lib


def test_cross_entropy_against_numpy() -> None:
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=[5, 3]), np.array([0, 2, 1, 1, 0])
    task = task_lib.resolve(types.ModuleType("none"), "classification")
    log_sum = np.log(np.exp(logits).sum(axis=1))
    expected = log_sum - logits[np.arange(5), labels]
    received = task.per_example_loss(tf.constant(labels), tf.constant(logits))
    np.testing.assert_allclose(received, expected, rtol=1e-6)
    assert [metric.name for metric in task.make_metrics()] == ["accuracy"]


@pytest.mark.parametrize("shape", [(4, 3), (4,)], ids=str)
def test_squared_error_against_numpy(shape) -> None:
    random = np.random.default_rng(0)
    labels = random.normal(size=shape).astype(np.float32)
    outputs = random.normal(size=(4, *(shape[1:] or (1,)))).astype(np.float32)
    task = task_lib.resolve(types.ModuleType("none"), "regression")
    expected = np.square(labels.reshape(outputs.shape) - outputs).mean(axis=1)
    received = task.per_example_loss(tf.constant(labels), tf.constant(outputs))
    np.testing.assert_allclose(received, expected, rtol=1e-6)


def test_a_models_own_come_first() -> None:
    module = types.ModuleType("own")
    module.per_example_loss = lambda labels, outputs: "loss"
    module.make_metrics = lambda: "metrics"
    task = task_lib.resolve(module, "regression")
    assert task.per_example_loss(None, None) == "loss"
    assert task.make_metrics() == "metrics"


def test_training_and_evaluation_share_their_metrics() -> None:
    """A second set would be called `accuracy_1`, or `auc_1` without a name."""
    task = task_lib.resolve(types.ModuleType("none"), "classification")
    assert task.make_metrics() is task.make_metrics()


@pytest.mark.parametrize(
    ("task", "labels", "outputs", "message"),
    [
        ("classification", tf.zeros([4, 1], tf.int32), [4, 3], "classes"),
        ("classification", tf.zeros([4]), [4, 3], "float32"),
        ("classification", tf.zeros([4, 3]), [4, 3], "classes"),
        ("classification", tf.zeros([4], tf.int32), [4, 2, 3], "classes"),
        ("regression", tf.zeros([4, 2]), [4, 3], "as many numbers"),
        ("regression", tf.zeros([4, 3], tf.int32), [4, 3], "int32"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    task, labels, outputs, message
) -> None:
    default = task_lib.resolve(types.ModuleType("none"), task)
    with pytest.raises(RequestError, match=f"--dataset: .*{message}"):
        default.per_example_loss(labels, tf.zeros(outputs))
