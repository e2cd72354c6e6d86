import re

import numpy as np
import tensorflow as tf

from examples import bring_your_own_model
from tests import processes


def test_the_loss_is_smoothed_cross_entropy() -> None:
    logits = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], np.float32)
    labels = np.array([2, 0])
    wanted = np.full([2, 3], 0.1 / 3)
    wanted[[0, 1], labels] += 0.9
    exponentials = np.exp(logits.astype(np.float64))
    shares = exponentials / exponentials.sum(-1, keepdims=True)
    losses = bring_your_own_model.per_example_loss(
        tf.constant(labels), tf.constant(logits)
    )
    np.testing.assert_allclose(
        losses, -(wanted * np.log(shares)).sum(-1), rtol=1e-5
    )


def test_two_replicas_learn_what_one_does() -> None:
    result = processes.run(
        "examples.bring_your_own_model", "--steps=60", program="-m"
    )
    assert result.returncode == 0, result.stderr
    pattern = r"(\w+) replicas? +loss ([\d.]+), accuracy ([\d.]+)%"
    (_, one, accuracy), (_, two, _) = re.findall(pattern, result.stdout)
    np.testing.assert_allclose(float(one), float(two), rtol=1e-5)
    assert float(accuracy) > 70
