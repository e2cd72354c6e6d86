from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from model.layers.parallel_map import ParallelMap
from tests.layer_checks import Case

METHODS = ("sequential", "vectorized")
register = keras.saving.register_keras_serializable(package="test_parallel_map")
MATRIX = np.random.default_rng(0).normal(size=(4, 4))


@register
def multiply(x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(tf.matmul(x, tf.constant(MATRIX, x.dtype)))


@register
def halve_until_small(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(
        lambda h: tf.reduce_max(h) > 1,
        lambda h: [h / 2],
        [x],
        maximum_iterations=9,
    )[0]


@register
def first_of_each_value(x: tf.Tensor) -> tf.Tensor:
    # TensorFlow has no vectorized form of `tf.unique`.
    return tf.gather(tf.reshape(x, [-1]), tf.unique(tf.reshape(x, [-1]))[1])


@register
def add_noise(x: tf.Tensor) -> tf.Tensor:
    return x + tf.random.normal(tf.shape(x))


@register
def index_of_largest(x: tf.Tensor) -> tf.Tensor:
    return tf.argmax(x, -1)


@register
def twins(x: tf.Tensor) -> list[tf.Tensor]:
    return [x, x]


@register
def refuse(x: tf.Tensor) -> tf.Tensor:
    raise ValueError("the function's own complaint")


def functional() -> keras.Model:
    x = keras.Input([4])
    return keras.Model(x, keras.layers.Dense(3)(x) + 1.0)


CASES = [
    Case(
        name="dense",
        kwargs=lambda: {"function": keras.layers.Dense(5)},
        input_shape=(4, 3, 2),
        num_variables=2,
    ),
    Case(
        name="dense_sequential",
        kwargs=lambda: {
            "function": keras.layers.Dense(5),
            "axis": -2,
            "method": "sequential",
            "parallel_iterations": 1,
        },
        input_shape=(4, 3, 2),
        num_variables=2,
    ),
    Case(
        name="functional_last_axis",
        kwargs=lambda: {"function": functional(), "axis": -1},
        input_shape=(4, 4, 3),
        num_variables=2,
    ),
    Case(
        name="convolution_sequential",
        kwargs=lambda: {
            "function": keras.layers.Conv1D(2, 2),
            "axis": 2,
            "method": "sequential",
        },
        input_shape=(4, 3, 2, 3),
        num_variables=2,
    ),
    Case(
        name="callable",
        kwargs=lambda: {"function": multiply},
        input_shape=(4, 3, 4),
        num_variables=0,
    ),
]


def compiled(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return tf.function(function, autograph=False, **kwargs)


def has_loop(layer: ParallelMap) -> bool:
    spec = tf.TensorSpec([2, 3, 4])
    graph = compiled(layer).get_concrete_function(spec).graph
    kinds = {operation.type for operation in graph.get_operations()}
    return bool(kinds & {"While", "StatelessWhile"})


@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize("axis", [0, 1, -3, -2], ids=str)
def test_matches_loop_over_slices(axis: int, method: str) -> None:
    layer = ParallelMap(multiply, axis=axis, method=method, dtype="float64")
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 4))
    slices = [np.tanh(one @ MATRIX) for one in np.moveaxis(x, axis, 0)]
    expected = np.stack(slices, axis=axis % 4)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_match_finite_differences(method: str) -> None:
    layer = ParallelMap(multiply, method=method, dtype="float64")
    x = tf.constant(np.random.default_rng(1).normal(size=(2, 3, 4)))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.nn.l2_loss(layer(x))
    gradient = tape.gradient(loss, x)
    for index in np.ndindex(2, 3, 4):
        step = np.zeros((2, 3, 4))
        step[index] = 1e-6
        up, down = (np.tanh((x + s) @ MATRIX) for s in (step, -step))
        slope = (np.sum(up**2) - np.sum(down**2)) / 4e-6
        assert abs(slope - gradient[index]) < 1e-8


@pytest.mark.parametrize("method", METHODS)
def test_each_slice_loops_as_often_as_it_needs(method: str) -> None:
    x = np.array([[0.5, 0.0], [3.0, 4.0], [0.0, 100.0]], "float32")
    layer = ParallelMap(halve_until_small, axis=0, method=method)
    expected = x / [[1], [4], [128]]
    np.testing.assert_allclose(compiled(layer)(x), expected, rtol=1e-6)


def test_loops_within_the_function_compile_if_sequential() -> None:
    x = np.array([[0.5, 0.0], [3.0, 4.0]], "float32")
    layer = ParallelMap(halve_until_small, axis=0, method="sequential")
    outputs = compiled(layer, jit_compile=True)(x)
    np.testing.assert_allclose(outputs, x / [[1], [4]], rtol=1e-6)


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_parallel_iterations_do_not_change_a_bit(mode: str) -> None:
    x = tf.random.normal([8, 32, 4])
    outputs, gradients = [], []
    for parallel_iterations in (1, 10):
        layer = ParallelMap(
            multiply,
            method="sequential",
            parallel_iterations=parallel_iterations,
        )
        run = compiled(
            lambda x, layer=layer: (layer(x), tf.gradients(layer(x), x)[0]),
            jit_compile=mode == "xla",
        )
        for found, one in zip((outputs, gradients), run(x), strict=True):
            found.append(one)
    np.testing.assert_array_equal(*outputs)
    np.testing.assert_array_equal(*gradients)


def test_auto_vectorizes_what_can_be() -> None:
    assert not has_loop(ParallelMap(multiply))
    assert has_loop(ParallelMap(first_of_each_value))
    assert has_loop(ParallelMap(multiply, method="sequential"))


@pytest.mark.parametrize("jit_compile", [None, False, True], ids=str)
def test_auto_maps_what_cannot_be_vectorized(jit_compile: bool | None) -> None:
    layer = ParallelMap(first_of_each_value, axis=0)
    run = layer
    if jit_compile is not None:
        run = compiled(layer, jit_compile=jit_compile)
    np.testing.assert_array_equal(
        run(tf.constant([[5.0, 5.0, 7.0], [3.0, 4.0, 4.0]])),
        [[5, 5, 5], [3, 4, 4]],
    )


def test_auto_leaves_nothing_of_its_first_try() -> None:
    auto, sequential = (
        compiled(ParallelMap(first_of_each_value, method=method))
        .get_concrete_function(tf.TensorSpec([2, 3, 4]))
        .graph.get_operations()
        for method in ("auto", "sequential")
    )
    assert [op.type for op in auto] == [op.type for op in sequential]


def test_vectorized_refuses_what_cannot_be() -> None:
    layer = ParallelMap(first_of_each_value, method="vectorized")
    # TensorFlow's own words: what "auto" catches is this ValueError.
    with pytest.raises(ValueError, match="No pfor vectorization defined"):
        layer(tf.zeros([2, 3, 4]))


@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_errors_of_the_function_are_shown(method: str) -> None:
    with pytest.raises(ValueError, match="the function's own complaint"):
        ParallelMap(refuse, method=method)(tf.zeros([2, 3, 4]))


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("method", METHODS)
def test_number_of_slices_may_be_unknown(
    method: str, jit_compile: bool
) -> None:
    run = compiled(
        ParallelMap(multiply, method=method),
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec([None, None, 4])],
    )
    for num_slices in (1, 5):
        x = np.ones((2, num_slices, 4), "float32")
        np.testing.assert_allclose(run(x), np.tanh(x @ MATRIX), atol=1e-5)
    assert run.experimental_get_tracing_count() == 1


def test_traces_once() -> None:
    layer = ParallelMap(keras.layers.Dense(2))
    layer.build((None, 3, 4))
    run = compiled(layer)
    run(tf.zeros([2, 3, 4]))
    run(tf.ones([2, 3, 4]))
    assert run.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("method", METHODS)
def test_results_may_have_another_rank_and_type(method: str) -> None:
    layer = ParallelMap(index_of_largest, method=method)
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    outputs = layer(x)
    np.testing.assert_array_equal(outputs, np.argmax(x, -1))
    spec = layer(keras.KerasTensor((None, 3, 4)))
    assert (spec.shape, spec.dtype) == ((None, 3), outputs.dtype.name)


@pytest.mark.parametrize("method", METHODS)
def test_nan_stays_in_its_slice(method: str) -> None:
    x = np.ones((2, 3, 4), "float32")
    x[:, 1] = np.nan
    outputs = ParallelMap(multiply, method=method)(x)
    np.testing.assert_array_equal(np.isnan(outputs), np.isnan(x))


@pytest.mark.parametrize("method", METHODS)
def test_random_operations_draw_for_each_slice(method: str) -> None:
    run = compiled(ParallelMap(add_noise, method=method))
    first, second = (run(tf.zeros([2, 3, 4])).numpy() for _ in range(2))
    assert len(np.unique([first, second])) == 2 * 2 * 3 * 4


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
@pytest.mark.parametrize("method", METHODS)
def test_dropout_is_shared_by_all_slices_if_vectorized(
    method: str, mode: str
) -> None:
    layer = ParallelMap(keras.layers.Dropout(0.5, seed=1), method=method)
    layer.build((None, 3, 50))
    run = layer
    if mode != "eager":
        run = compiled(layer, jit_compile=mode == "xla")
    x = np.ones((2, 3, 50), "float32")
    first, second = (run(x, training=True).numpy() for _ in range(2))
    assert not np.array_equal(first, second)
    same = np.array_equal(first[:, 0], first[:, 1])
    assert same == (method == "vectorized")
    np.testing.assert_array_equal(run(x, training=False), x)


def test_function_learns_of_training_from_the_model() -> None:
    model = keras.Sequential([ParallelMap(keras.layers.Dropout(0.5, seed=1))])
    x = np.ones((2, 3, 50), "float32")
    assert not np.array_equal(model(x, training=True), x)
    np.testing.assert_array_equal(model(x), x)


def test_variables_of_the_function_are_those_of_the_layer() -> None:
    dense = keras.layers.Dense(2, kernel_regularizer="l2")
    layer = ParallelMap(dense)
    layer.build((None, 3, 4))
    assert layer.trainable_variables == dense.trainable_variables
    assert len(layer.losses) == 1


def test_rejects_function_that_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="function=3: must be callable"):
        ParallelMap(3)


@pytest.mark.parametrize(
    "function", [lambda x: x, keras.ops.tanh], ids=["lambda", "unregistered"]
)
def test_rejects_function_that_cannot_be_saved(function: Any) -> None:
    with pytest.raises(ValueError, match="register_keras_serializable"):
        ParallelMap(function)


@pytest.mark.parametrize("axis", [1.0, None, "time"], ids=str)
def test_rejects_axis(axis: object) -> None:
    with pytest.raises(TypeError, match="must be an integer"):
        ParallelMap(multiply, axis=axis)


def test_rejects_method() -> None:
    with pytest.raises(ValueError, match="method='fast'"):
        ParallelMap(multiply, method="fast")


@pytest.mark.parametrize("count", [0, -1, 2.5], ids=str)
def test_rejects_parallel_iterations(count: object) -> None:
    with pytest.raises(ValueError, match=f"parallel_iterations={count}"):
        ParallelMap(multiply, parallel_iterations=count)


@pytest.mark.parametrize("axis", [3, -4], ids=str)
def test_rejects_input_without_the_axis(axis: int) -> None:
    with pytest.raises(ValueError, match=f"has no axis {axis}"):
        ParallelMap(multiply, axis=axis).build((None, 3, 4))


@pytest.mark.parametrize("method", METHODS)
def test_rejects_input_without_slices(method: str) -> None:
    with pytest.raises(ValueError, match="no slices along axis 1"):
        ParallelMap(multiply, method=method)(tf.zeros([2, 0, 4]))


def test_rejects_results_that_end_before_the_axis() -> None:
    with pytest.raises(ValueError, match="cannot be stacked along axis 2"):
        ParallelMap(index_of_largest, axis=2).build((None, 3, 4))


def test_rejects_function_of_two_results() -> None:
    with pytest.raises(TypeError, match="must return one tensor"):
        ParallelMap(twins)(tf.zeros([2, 3, 4]))
