import numpy as np
import tensorflow as tf

from benchmarks import _products


def test_ways_compute_the_same() -> None:
    matrices = tf.random.stateless_normal([7, 5, 5], (1, 2), stddev=0.4)
    vectors = tf.random.stateless_normal([7, 5], (3, 4))
    chained, once = _products.ways(matrices, vectors)
    total = chained.pop("memory")()
    np.testing.assert_allclose(total, np.sum(matrices), rtol=1e-4)
    expected = vectors.numpy()
    for number in range(_products.CHAIN):
        expected = np.einsum("nmk,nk->nm", matrices, expected)
        ways = once if number == 0 else {}
        ways = chained if number == _products.CHAIN - 1 else ways
        for name, run in ways.items():
            np.testing.assert_allclose(
                np.reshape(run(), [7, 5]), expected, atol=1e-5, err_msg=name
            )
