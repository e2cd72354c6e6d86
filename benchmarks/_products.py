"""Every way that people take to multiply many matrices by a vector each."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from model.layers.batched_mat_vec import BatchedMatVec
from model.layers.mat_vec import matvec

Contestants = dict[str, Callable[[], Any]]
# Products of one contestant that is measured in a loop.
CHAIN = 10


def ways(
    matrices: tf.Tensor, vectors: tf.Tensor
) -> tuple[Contestants, Contestants]:
    array, rows = matrices.numpy(), vectors.numpy()
    num, size = rows.shape
    layer = BatchedMatVec(size, use_bias=False)
    layer.build((None, num, size))
    layer.set_weights([array.swapaxes(1, 2)])

    def loop() -> tf.Tensor:
        buffer = tf.TensorArray(tf.float32, num, element_shape=[size])

        def body(i: tf.Tensor, kept: tf.TensorArray) -> list[Any]:
            product = tf.linalg.matvec(matrices[i], vectors[i])
            return [i + 1, kept.write(i, product)]

        return tf.while_loop(lambda i, _: i < num, body, [0, buffer])[1].stack()

    def each(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return tf.linalg.matvec(*pair)

    pairs = (matrices, vectors)

    def sum_up(total: tf.Tensor) -> tf.Tensor:
        # Nothing of it changes, so that it would be done once and for all.
        with tf.control_dependencies([total]):
            return tf.reduce_sum(matrices)

    def multiply(x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(matrices, x)

    chained: Contestants = {
        "memory": graph(_chain(sum_up, tf.constant(0.0))),
        "BatchedMatVec": graph(_chain(layer, vectors[tf.newaxis])),
        "matvec": graph(_chain(lambda x: matvec(matrices, x), vectors)),
        "tf.linalg.matvec": graph(_chain(multiply, vectors)),
        "matvec, XLA": graph(_chain(multiply, vectors), True),
        "np.einsum": _chain(lambda x: np.einsum("nmk,nk->nm", array, x), rows),
        "np.matmul": _chain(lambda x: array @ x, rows[..., np.newaxis]),
    }
    signature = tf.TensorSpec([size], tf.float32)
    once: Contestants = {
        "vectorized_map": graph(lambda: tf.vectorized_map(each, pairs)),
        "while_loop": graph(loop),
        "while_loop, XLA": graph(loop, True),
        "eager loop": lambda: tf.stack(
            [tf.linalg.matvec(matrices[i], vectors[i]) for i in range(num)]
        ),
        "map_fn": graph(
            lambda: tf.map_fn(each, pairs, fn_output_signature=signature)
        ),
    }
    return chained, once


def _chain(product: Callable[[Any], Any], first: Any) -> Callable[[], Any]:
    """Returns what calls `product` on its own result, from `first` on."""
    if isinstance(first, np.ndarray):
        return lambda: functools.reduce(
            lambda x, _: product(x), range(CHAIN), first
        )

    def body(i: tf.Tensor, x: tf.Tensor) -> list[tf.Tensor]:
        return [i + 1, product(x)]

    # One at a time, as steps of a training are.
    return lambda: tf.while_loop(
        lambda i, _: i < CHAIN, body, [0, first], parallel_iterations=1
    )[1]


def graph(
    function: Callable[[], Any], jit_compile: bool = False
) -> Callable[[], Any]:
    return tf.function(function, autograph=False, jit_compile=jit_compile)
