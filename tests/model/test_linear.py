import numpy as np
import tensorflow as tf

from model import ModelConfig
from model import linear


def test_matches_numpy() -> None:
    spec = (tf.TensorSpec([None, 2, 3], tf.float32), None, None)
    model = linear.build(ModelConfig(), spec, 4)
    x = np.random.default_rng(0).normal(size=[5, 2, 3]).astype(np.float32)
    kernel, bias = model.get_weights()
    expected = x.reshape(5, 6).astype(np.float64) @ kernel + bias
    np.testing.assert_allclose(model(x), expected, atol=1e-5)
