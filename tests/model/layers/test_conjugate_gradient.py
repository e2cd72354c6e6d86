from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from model.layers.conjugate_gradient import ConjugateGradient
from tests.layer_checks import Case


def make_systems(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Makes of normal draws `A = I + W Wᵀ / K`, scaled by rows, and `b`."""
    factor, vector = parts
    size = vector.shape[-1]
    matrix = np.eye(size) + factor @ factor.swapaxes(-1, -2) / size
    scale = np.logspace(-0.2, 0.2, size)
    return [matrix * scale[:, None] * scale, vector]


def systems(num: int, size: int, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    draws = [
        random.normal(size=shape) for shape in ((num, size, size), (num, size))
    ]
    return make_systems(draws)


@keras.saving.register_keras_serializable(package="tests")
def rank_one_update(factor: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """`A = I + f fᵀ`, of which only `f` is stored."""
    inner = tf.reduce_sum(factor * vectors, axis=-1, keepdims=True)
    return vectors + factor * inner


CASES = [
    Case(
        name="implicit",
        kwargs=lambda: {"preconditioner": "jacobi"},
        input_shape=[(8, 5, 5), (8, 5)],
        num_variables=0,
        prepare=make_systems,
    ),
    Case(
        name="iterates",
        kwargs=lambda: {"maximum_iterations": 4, "return_iterates": True},
        input_shape=[(8, 5, 5), (8, 5)],
        num_variables=1,
        prepare=make_systems,
    ),
    Case(
        name="matvec",
        kwargs=lambda: {"matvec": rank_one_update, "preconditioner": "none"},
        input_shape=[(8, 5), (8, 5)],
        num_variables=0,
    ),
]


def solve(
    matrix: np.ndarray,
    vector: np.ndarray,
    scale: np.ndarray,
    count: int,
) -> np.ndarray:
    """The textbook's loop for one example; returns every iterate `[T, K]`."""
    x, r = np.zeros_like(vector), vector
    p = scale * r
    iterates = []
    for _ in range(count):
        image = matrix @ p
        rate = r @ (scale * r) / (p @ image)
        x = x + rate * p
        new = r - rate * image
        factor = new @ (scale * new) / (r @ (scale * r))
        p, r = scale * new + factor * p, new
        iterates.append(x)
    return np.stack(iterates)


def make_layer(**kwargs: Any) -> ConjugateGradient:
    return ConjugateGradient(dtype="float64", **kwargs)


def values(metrics: list[keras.metrics.Mean]) -> list[float]:
    return [float(metric.result()) for metric in metrics]


@pytest.mark.parametrize("preconditioner", ["learned", "jacobi", "none"])
def test_solves(preconditioner: str) -> None:
    matrix, vector = systems(6, 7)
    layer = make_layer(preconditioner=preconditioner, tolerance=1e-10)
    expected = np.linalg.solve(matrix, vector[..., None])[..., 0]
    found = layer([tf.constant(matrix), tf.constant(vector)])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
    iterations, residual, converged = values(layer.convergence)
    assert iterations < 20
    assert residual <= 1e-10
    assert converged == 1


@pytest.mark.parametrize("preconditioner", ["learned", "jacobi", "none"])
def test_iterates_match_textbook(preconditioner: str) -> None:
    matrix, vector = systems(6, 7)
    layer = make_layer(
        preconditioner=preconditioner,
        maximum_iterations=5,
        tolerance=0,
        return_iterates=True,
    )
    layer.build([matrix.shape, vector.shape])
    scale = {"none": np.ones(7), "learned": np.linspace(0.5, 2, 7)}
    if preconditioner == "learned":
        layer.log_scale.assign(np.log(scale["learned"]))
    found = layer([tf.constant(matrix), tf.constant(vector)])
    for i in range(6):
        used = scale.get(preconditioner, 1 / np.diag(matrix[i]))
        expected = solve(matrix[i], vector[i], used, 5)
        np.testing.assert_allclose(found[i], expected, rtol=0, atol=1e-10)


def test_stopped_example_repeats_its_last_iterate() -> None:
    matrix, vector = systems(2, 5)
    matrix[0] = np.eye(5)  # one iteration is enough
    layer = make_layer(
        preconditioner="none", maximum_iterations=8, return_iterates=True
    )
    found = layer([tf.constant(matrix), tf.constant(vector)]).numpy()
    for iterate in found[0]:
        np.testing.assert_array_equal(iterate, found[0, 0])
    np.testing.assert_allclose(found[0, 0], vector[0], rtol=1e-12)
    assert not np.allclose(found[1, 0], found[1, 1])
    last = np.linalg.solve(matrix[1], vector[1])
    np.testing.assert_allclose(found[1, -1], last, rtol=0, atol=1e-5)
    assert 1 < values(layer.convergence)[0] < 8


def differentiate(
    layer: ConjugateGradient, matrix: np.ndarray, vector: np.ndarray
) -> list[np.ndarray]:
    inputs = [tf.constant(matrix), tf.constant(vector)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = tf.reduce_sum(tf.sin(layer(inputs)))
    weights = [weight.value for weight in layer.trainable_variables]
    of_inputs, of_weights = tape.gradient(value, [inputs, weights])
    return [tensor.numpy() for tensor in (*of_inputs, *of_weights)]


def test_implicit_gradient_matches_finite_differences() -> None:
    matrix, vector = systems(2, 4)
    layer = make_layer(preconditioner="jacobi", tolerance=1e-13)
    of_matrix, of_vector = differentiate(layer, matrix, vector)

    def loss(matrix: np.ndarray, vector: np.ndarray) -> float:
        return np.sum(np.sin(np.linalg.solve(matrix, vector[..., None])))

    for index in np.ndindex(*vector.shape):
        step = np.zeros(vector.shape)
        step[index] = 1e-6
        up, down = loss(matrix, vector + step), loss(matrix, vector - step)
        assert abs((up - down) / 2e-6 - of_vector[index]) < 1e-7
    for index in np.ndindex(*matrix.shape):
        step = np.zeros(matrix.shape)
        step[index] = 1e-6
        up, down = loss(matrix + step, vector), loss(matrix - step, vector)
        assert abs((up - down) / 2e-6 - of_matrix[index]) < 1e-7


def test_gradients_of_iterates_match_finite_differences() -> None:
    matrix, vector = systems(2, 4)
    layer = make_layer(maximum_iterations=3, tolerance=0, return_iterates=True)
    of_matrix, of_vector, of_weight = differentiate(layer, matrix, vector)

    def loss(vector: np.ndarray, log_scale: np.ndarray) -> float:
        found = [
            solve(matrix[i], vector[i], np.exp(log_scale), 3) for i in range(2)
        ]
        return np.sum(np.sin(found))

    for index in np.ndindex(*vector.shape):
        step = np.zeros(vector.shape)
        step[index] = 1e-6
        zero = np.zeros(4)
        up, down = loss(vector + step, zero), loss(vector - step, zero)
        assert abs((up - down) / 2e-6 - of_vector[index]) < 1e-7
    for index in range(4):
        step = np.zeros(4)
        step[index] = 1e-6
        up, down = loss(vector, step), loss(vector, -step)
        assert abs((up - down) / 2e-6 - of_weight[index]) < 1e-7
    assert np.all(np.isfinite(of_matrix))


def test_implicit_gradient_matches_the_unrolled_one() -> None:
    matrix, vector = systems(3, 5)
    implicit = make_layer(preconditioner="none", tolerance=1e-12)
    unrolled = make_layer(
        preconditioner="none",
        maximum_iterations=30,
        tolerance=1e-12,
        return_iterates=True,
    )
    inputs = [tf.constant(matrix), tf.constant(vector)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        one = tf.reduce_sum(tf.sin(implicit(inputs)))
        other = tf.reduce_sum(tf.sin(unrolled(inputs)[:, -1]))
    np.testing.assert_allclose(
        tape.gradient(one, inputs[1]),
        tape.gradient(other, inputs[1]),
        rtol=0,
        atol=1e-7,
    )


def test_preconditioner_learns_only_from_iterates() -> None:
    matrix, vector = systems(2, 4)
    inputs = [tf.constant(matrix), tf.constant(vector)]
    layer = make_layer()
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer(inputs))
    assert tape.gradient(value, layer.log_scale.value) is None


def test_matvec_receives_what_stands_for_the_matrix() -> None:
    random = np.random.default_rng(0)
    factor, vector = random.normal(size=(2, 3, 6))
    layer = make_layer(
        matvec=rank_one_update, preconditioner="none", tolerance=1e-12
    )
    matrix = np.eye(6) + factor[:, :, None] * factor[:, None, :]
    of_factor, of_vector = differentiate(layer, factor, vector)
    dense = make_layer(preconditioner="none", tolerance=1e-12)
    of_matrix, expected = differentiate(dense, matrix, vector)
    np.testing.assert_allclose(of_vector, expected, rtol=0, atol=1e-9)
    both = of_matrix + of_matrix.swapaxes(1, 2)
    np.testing.assert_allclose(
        of_factor, np.einsum("bij,bj->bi", both, factor), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("mode", ["eager", "graph", "jit"])
def test_row_does_not_depend_on_its_batch(mode: str) -> None:
    matrix, vector = systems(6, 5)
    vector *= np.logspace(-4, 1, 6)[:, None]
    layer = make_layer(preconditioner="none")
    layer.build([(None, 5, 5), (None, 5)])
    run = layer
    if mode != "eager":
        run = tf.function(layer, autograph=False, jit_compile=mode == "jit")
    together = run([tf.constant(matrix), tf.constant(vector)])
    for i in range(6):
        rows = [tf.constant(matrix[i : i + 1]), tf.constant(vector[i : i + 1])]
        np.testing.assert_allclose(
            run(rows)[0], together[i], rtol=0, atol=1e-12
        )


def test_zero_vector_has_the_solution_zero() -> None:
    matrix, vector = systems(2, 4)
    vector[0] = 0
    layer = make_layer()
    of_matrix, of_vector, *_ = differentiate(
        make_layer(preconditioner="none"), matrix, vector
    )
    found = layer([tf.constant(matrix), tf.constant(vector)])
    np.testing.assert_array_equal(found[0], np.zeros(4))
    assert values(layer.convergence)[2] == 1
    assert np.all(np.isfinite(of_matrix))
    assert np.all(np.isfinite(of_vector))


def test_not_a_number_stays_visible_and_alone() -> None:
    matrix, vector = systems(3, 4)
    layer = make_layer(preconditioner="none", maximum_iterations=1000)
    clean = layer([tf.constant(matrix), tf.constant(vector)]).numpy()
    for metric in layer.convergence:
        metric.reset_state()
    vector[1, 2] = np.nan
    found = layer([tf.constant(matrix), tf.constant(vector)]).numpy()
    assert np.isnan(found[1]).any()
    np.testing.assert_array_equal(found[[0, 2]], clean[[0, 2]])
    iterations, _, converged = values(layer.convergence)
    assert iterations < 20  # it does not run to the bound
    np.testing.assert_allclose(converged, 2 / 3)


def test_stops_where_the_matrix_is_not_positive_definite() -> None:
    matrix = np.stack([np.diag([1.0, -1.0]), np.eye(2)])
    vector = np.array([[1.0, 2.0], [1.0, 2.0]])
    layer = make_layer(preconditioner="none")
    found = layer([tf.constant(matrix), tf.constant(vector)])
    np.testing.assert_array_equal(found, [[0.0, 0.0], [1.0, 2.0]])
    assert values(layer.convergence) == [0.5, 0.5, 0.5]


def test_says_when_it_has_not_converged() -> None:
    matrix, vector = systems(4, 9)
    layer = make_layer(preconditioner="none", maximum_iterations=2)
    found = layer([tf.constant(matrix), tf.constant(vector)]).numpy()
    left = vector - np.einsum("bij,bj->bi", matrix, found)
    relative = np.linalg.norm(left, axis=1) / np.linalg.norm(vector, axis=1)
    iterations, residual, converged = values(layer.convergence)
    assert (iterations, converged) == (2, 0)
    np.testing.assert_allclose(residual, relative.mean(), rtol=1e-6)


def test_asymmetric_matrix_in_a_graph_is_reported_as_not_converged() -> None:
    matrix, vector = systems(2, 6)
    matrix[:, 0, 5] += 3
    layer = make_layer(preconditioner="none", maximum_iterations=200)
    layer.build([matrix.shape, vector.shape])
    run = tf.function(layer, autograph=False)
    run([tf.constant(matrix), tf.constant(vector)])
    assert values(layer.convergence)[2] < 1


def test_half_precision_is_solved_in_float32() -> None:
    matrix, vector = (array.astype("float32") for array in systems(4, 6))
    layer = ConjugateGradient(dtype="mixed_bfloat16", preconditioner="none")
    found = layer([tf.constant(matrix), tf.constant(vector)])
    exact = ConjugateGradient(preconditioner="none")([matrix, vector])
    assert found.dtype == tf.bfloat16
    np.testing.assert_array_equal(found, tf.cast(exact, "bfloat16"))


@pytest.mark.parametrize("preconditioner", ["jacobi", "none"])
@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_size_of_the_system_does_not_matter(
    preconditioner: str, size: float
) -> None:
    matrix, vector = (array.astype("float32") for array in systems(4, 6))
    layer = ConjugateGradient(preconditioner=preconditioner)
    one = layer([tf.constant(matrix), tf.constant(vector)])
    for metric in layer.convergence:
        metric.reset_state()
    vector = tf.constant(vector * np.float32(size))
    with tf.GradientTape() as tape:
        tape.watch(vector)
        other = layer([tf.constant(matrix), vector])
        value = tf.reduce_sum(other / size)
    np.testing.assert_allclose(other / size, one, rtol=1e-3, atol=1e-5)
    expected = np.linalg.solve(matrix, np.ones([4, 6, 1]))[..., 0]
    np.testing.assert_allclose(
        tape.gradient(value, vector) * size, expected, rtol=1e-3, atol=1e-4
    )
    assert values(layer.convergence)[2] == 1


@pytest.mark.parametrize("return_iterates", [False, True])
def test_reports_the_residual_of_the_result(return_iterates: bool) -> None:
    """Not the one carried along, which is far smaller here."""
    random = np.random.default_rng(0)
    basis = np.linalg.qr(random.normal(size=(8, 16, 16)))[0]
    matrix = (basis * np.logspace(0, 4, 16)) @ basis.swapaxes(1, 2)
    matrix = ((matrix + matrix.swapaxes(1, 2)) / 2).astype("float32")
    vector = random.normal(size=(8, 16)).astype("float32")
    layer = ConjugateGradient(
        preconditioner="none",
        tolerance=1e-6,
        maximum_iterations=200,
        return_iterates=return_iterates,
    )
    found = layer([tf.constant(matrix), tf.constant(vector)]).numpy()
    found = found[:, -1] if return_iterates else found
    left = vector - np.einsum("bij,bj->bi", matrix.astype("float64"), found)
    relative = np.linalg.norm(left, axis=1) / np.linalg.norm(vector, axis=1)
    _, residual, converged = values(layer.convergence)
    np.testing.assert_allclose(residual, relative.mean(), rtol=0.5)
    assert residual > 1e-6
    assert converged < 1


def test_has_no_second_derivative() -> None:
    matrix, vector = map(tf.constant, systems(2, 4))
    layer = make_layer(preconditioner="none")
    with tf.GradientTape() as outer:
        outer.watch(vector)
        with tf.GradientTape() as inner:
            inner.watch(vector)
            value = tf.reduce_sum(layer([matrix, vector]))
        first = inner.gradient(value, vector)
    assert outer.gradient(first, vector) is None


def test_traces_once() -> None:
    layer = ConjugateGradient()
    layer.build([(None, 3, 3), (None, 3)])
    compiled = tf.function(layer, autograph=False)
    for scale in (1.0, 2.0):
        compiled([tf.eye(3, batch_shape=[2]), scale * tf.ones([2, 3])])
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"maximum_iterations": 0}, "maximum_iterations=0"),
        ({"tolerance": -1.0}, "tolerance=-1.0"),
        ({"tolerance": 0.0}, "give maximum_iterations"),
        ({"matvec": lambda a, b: a * b}, "decorated with"),
        ({"matvec": 3}, "matvec=3: must be a function"),
        ({"preconditioner": "ilu"}, "'ilu': must be one of learned, jacobi"),
        (
            {"preconditioner": "jacobi", "matvec": rank_one_update},
            "'jacobi': needs the diagonal",
        ),
    ],
    ids=[
        "bound",
        "tolerance",
        "endless",
        "not_registered",
        "not_callable",
        "name",
        "no_diagonal",
    ],
)
def test_rejects_settings(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConjugateGradient(**kwargs)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ((None, 3, 4), r"call it on \[A, b\]"),
        ({"matrix": (None, 3, 3), "vector": (None, 3)}, r"call it on \[A, b\]"),
        ([(None, 3, 4), (None, 4)], r"must be \[batch, 4, 4\]"),
        ([(None, 3, 3), (None, 4)], r"must be \[batch, 4, 4\]"),
        ([(None, 3), (None, 3)], r"must be \[batch, 3, 3\]"),
        ([(None, 3, 3), (None, 3, 1)], "b has shape"),
        ([(None, None, None), (None, None)], "known unknowns"),
    ],
    ids=["one", "dict", "not_square", "length", "rank", "rank_of_b", "unknown"],
)
def test_rejects_shapes(shapes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConjugateGradient().build(shapes)


def test_rejects_asymmetric_matrix() -> None:
    # The first is larger than the second by more than it is asymmetric.
    matrix = tf.constant([[[1e6, 0.0], [0.0, 1e6]], [[1.0, 0.5], [0.0, 1.0]]])
    with pytest.raises(ValueError, match=r"matrix 1 differs .* by 0\.5"):
        ConjugateGradient()([matrix, tf.ones([2, 2])])


def test_rejects_other_shapes_than_it_was_built_for() -> None:
    layer = ConjugateGradient()
    layer([tf.eye(4, batch_shape=[1]), tf.ones([1, 4])])
    with pytest.raises(ValueError, match=r"must be \[batch, 4, 4\]"):
        layer([tf.eye(5, batch_shape=[1]), tf.ones([1, 4])])


def test_rejects_integers() -> None:
    with pytest.raises(TypeError, match="b is int32"):
        ConjugateGradient()(
            [tf.eye(2, batch_shape=[1]), tf.ones([1, 2], "int32")]
        )
