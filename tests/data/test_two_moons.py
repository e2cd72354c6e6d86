import numpy as np
import tensorflow as tf

from data import DataConfig
from data import two_moons


def test_points_lie_on_their_half_circles() -> None:
    config = DataConfig(dataset="two_moons")
    indices = tf.range(400, dtype=tf.int64)
    points, labels = tf.map_fn(
        lambda index: two_moons.example(config, "train", index),
        indices,
        fn_output_signature=(tf.float32, tf.int32),
    )
    np.testing.assert_array_equal(labels, np.arange(400) % 2)
    centers = np.where(labels.numpy()[:, None], [1.0, 0.5], [0.0, 0.0])
    radii = np.linalg.norm(points - centers, axis=1)
    assert np.all(np.abs(radii - 1) < 0.5)
    assert np.abs(radii.mean() - 1) < 0.05
