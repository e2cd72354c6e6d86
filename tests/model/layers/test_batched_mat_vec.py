import keras
import numpy as np
import pytest
import tensorflow as tf

import placement
from model.layers.batched_mat_vec import BatchedMatVec
from tests.layer_checks import Case

CASES = [
    Case(
        name="default",
        kwargs=lambda: {"units": 5},
        input_shape=(8, 3, 4),
        num_variables=2,
    ),
    Case(
        name="leading_axes",
        kwargs=lambda: {
            "units": 4,
            "use_bias": False,
            "activation": "tanh",
            "kernel_initializer": keras.initializers.HeNormal(seed=1),
            "kernel_regularizer": "l2",
            "kernel_constraint": "non_neg",
        },
        input_shape=(4, 2, 3, 4),
        num_variables=1,
    ),
    Case(
        name="split_groups",
        kwargs=lambda: {"units": 5, "split_groups": True},
        input_shape=(8, 3, 4),
        num_variables=2,
    ),
    Case(
        name="shared",
        kwargs=lambda: {"units": 5, "shared": True},
        input_shape=(8, 3, 4),
        num_variables=2,
    ),
]


def make_layer(**kwargs: object) -> BatchedMatVec:
    return BatchedMatVec(5, bias_initializer="normal", **kwargs)


@pytest.mark.parametrize("shared", [False, True], ids=["per_group", "shared"])
@pytest.mark.parametrize("leading", [(1,), (6,), (2, 3)], ids=str)
def test_matches_loop_of_matrix_vector_products(
    leading: tuple[int, ...], shared: bool
) -> None:
    layer = make_layer(shared=shared, activation="tanh", dtype="float64")
    x = np.random.default_rng(0).normal(size=(*leading, 3, 4))
    outputs = layer(x)
    kernel, bias = (np.asarray(w) for w in layer.get_weights())
    if shared:
        kernel, bias = np.stack([kernel] * 3), np.stack([bias] * 3)
    expected = np.empty((*leading, 3, 5))
    for index in np.ndindex(*leading, 3):
        n = index[-1]
        expected[index] = np.tanh(kernel[n].T @ x[index] + bias[n])
    np.testing.assert_allclose(outputs, expected, rtol=1e-12)


@pytest.mark.parametrize("shared", [False, True], ids=["per_group", "shared"])
def test_gradients_match_finite_differences(shared: bool) -> None:
    layer = make_layer(shared=shared, dtype="float64")
    layer.build((None, 3, 4))
    x = tf.random.normal([2, 3, 4], dtype="float64")

    def loss(x: tf.Tensor, *weights: tf.Tensor) -> tf.Tensor:
        layer.set_weights(weights)
        return tf.reduce_sum(tf.sin(layer(x)))

    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(tf.sin(layer(x)))
    variables = [v.value for v in layer.trainable_variables]
    of_x, of_weights = tape.gradient(value, [x, variables])
    point = [x.numpy(), *layer.get_weights()]
    for i, gradient in enumerate([of_x, *of_weights]):
        for index in np.ndindex(*gradient.shape):
            step = np.zeros(gradient.shape)
            step[index] = 1e-6
            up = loss(*point[:i], point[i] + step, *point[i + 1 :])
            down = loss(*point[:i], point[i] - step, *point[i + 1 :])
            assert abs((up - down) / 2e-6 - gradient[index]) < 1e-8


def test_makes_nothing_of_the_size_of_a_matrix_per_example() -> None:
    layer = BatchedMatVec(11)
    layer.build((None, 3, 5))

    @tf.function(autograph=False)
    def gradients(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.nn.l2_loss(layer(x))
        return tape.gradient(loss, [x, layer.kernel.value])

    graph = gradients.get_concrete_function(tf.TensorSpec([7, 3, 5])).graph
    tensors = [tensor for op in graph.get_operations() for tensor in op.outputs]
    sizes = {t.shape.num_elements() for t in tensors}
    assert 7 * 3 * 11 in sizes
    assert 7 * 3 * 5 * 11 not in sizes


@pytest.mark.parametrize(
    ("initializer", "variance"),
    [
        ("glorot_uniform", 2 / (20 + 40)),
        ("he_normal", 2 / 20),
        (keras.initializers.RandomNormal(stddev=0.5, seed=3), 0.25),
        (
            keras.initializers.LecunNormal(keras.random.SeedGenerator(3)),
            1 / 20,
        ),
    ],
    ids=["glorot_uniform", "he_normal", "random_normal", "seed_generator"],
)
def test_variance_is_that_of_one_matrix(
    initializer: object, variance: float
) -> None:
    layer = BatchedMatVec(40, kernel_initializer=initializer)
    layer.build((None, 50, 20))
    kernel = layer.kernel.numpy()
    assert abs(kernel.var() / variance - 1) < 0.02
    # No two matrices are alike.
    assert len(np.unique(kernel[:, 0, 0])) == 50


def test_every_matrix_is_orthogonal_and_repeatable() -> None:
    def kernel() -> np.ndarray:
        initializer = keras.initializers.Orthogonal(seed=1)
        layer = BatchedMatVec(4, kernel_initializer=initializer)
        layer.build((None, 3, 4))
        return layer.kernel.numpy()

    products = kernel() @ kernel().swapaxes(1, 2)
    np.testing.assert_allclose(products, np.stack([np.eye(4)] * 3), atol=1e-5)


def test_regularizers_and_constraints_apply() -> None:
    layer = BatchedMatVec(
        2,
        kernel_initializer="ones",
        bias_initializer="ones",
        kernel_regularizer=keras.regularizers.L1(0.1),
        bias_regularizer=keras.regularizers.L1(1.0),
        kernel_constraint="non_neg",
        bias_constraint="non_neg",
    )
    layer.build((None, 3, 4))
    np.testing.assert_allclose(sum(layer.losses), 0.1 * 3 * 4 * 2 + 3 * 2)
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.apply(
        [tf.fill(v.shape, 5.0) for v in layer.trainable_variables],
        layer.trainable_variables,
    )
    assert all(np.all(w == 0) for w in layer.get_weights())


def test_traces_once() -> None:
    layer = BatchedMatVec(5)
    layer.build((None, 3, 4))
    compiled = tf.function(layer, autograph=False)
    compiled(tf.zeros([2, 3, 4]))
    compiled(tf.ones([2, 3, 4]))
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("units", [0, -1, 2.5], ids=str)
def test_rejects_units(units: object) -> None:
    with pytest.raises(ValueError, match=f"units={units}"):
        BatchedMatVec(units)


@pytest.mark.parametrize(
    "shape", [(4,), (None, 4), (None, None, 4), (None, 3, None)], ids=str
)
def test_rejects_input_shape(shape: tuple[int | None, ...]) -> None:
    with pytest.raises(ValueError, match="known groups and values"):
        BatchedMatVec(2).build(shape)


def test_rejects_other_groups_than_built_for() -> None:
    layer = BatchedMatVec(2)
    layer.build((None, 3, 4))
    with pytest.raises(ValueError, match="expected axis -2"):
        layer(tf.zeros([2, 5, 4]))


def test_rejects_integers() -> None:
    with pytest.raises(TypeError, match="input is int32"):
        BatchedMatVec(2)(tf.zeros([2, 3, 4], tf.int32))


def test_groups_are_shared_by_the_devices_of_a_replica() -> None:
    split_shapes = []

    class Placer:
        num_devices = 3
        partition_dimensions = ()

        def split(self, tensor: tf.Tensor, partition: tuple) -> tf.Tensor:
            assert partition == (3, 1, 1)
            split_shapes.append(tensor.shape.as_list())
            return tensor

    layer = make_layer(split_groups=True)
    x = tf.random.stateless_normal([8, 3, 4], (1, 2))
    expected = layer(x)
    with placement.using(Placer()):
        outputs = layer(x)
    np.testing.assert_array_equal(outputs, expected)
    # Vectors, matrices and products, of each group.
    assert split_shapes == [[3, 8, 4], [3, 4, 5], [3, 8, 5]]


def test_groups_that_share_a_matrix_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="shared=True"):
        make_layer(shared=True, split_groups=True)
