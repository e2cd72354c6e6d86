from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from model.layers.scan_recurrence import ScanRecurrence
from tests.layer_checks import Case

METHODS = ("loop", "scan")
SHAPES = {"diagonal": (3,), "full": (3, 3)}


def _shrink(inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Makes the coefficients small enough for states of order 1."""
    return [inputs[0] / 4, *inputs[1:]]


CASES = [
    Case(
        name="loop_full",
        kwargs=lambda: {"method": "loop"},
        input_shape=[(4, 5, 3, 3), (4, 5, 3), (4, 3)],
        num_variables=0,
        prepare=_shrink,
    ),
    Case(
        name="scan_full",
        kwargs=lambda: {"method": "scan"},
        input_shape=[(4, 5, 3, 3), (4, 5, 3)],
        num_variables=0,
        prepare=_shrink,
    ),
    Case(
        name="loop_diagonal",
        kwargs=lambda: {"method": "loop"},
        input_shape=[(4, 6, 3), (4, 6, 3)],
        num_variables=0,
        prepare=_shrink,
    ),
    Case(
        name="auto_diagonal",
        kwargs=lambda: {},
        input_shape=[(4, 6, 3), (4, 6, 3), (4, 3)],
        num_variables=0,
        prepare=_shrink,
    ),
]


def draw(
    steps: int, kind: str, batch: int = 2, dtype: str = "float64"
) -> list[tf.Tensor]:
    random = np.random.default_rng(0)
    shapes = [(batch, steps, *SHAPES[kind]), (batch, steps, 3), (batch, 3)]
    a, b, h = (random.normal(size=shape) for shape in shapes)
    return [tf.constant(x, dtype) for x in (a / 2, b, h)]


def by_hand(
    coefficients: np.ndarray, offsets: np.ndarray, initial: np.ndarray
) -> np.ndarray:
    states = np.empty(offsets.shape)
    for i, t in np.ndindex(*offsets.shape[:2]):
        h = np.asarray(states[i, t - 1] if t else initial[i])
        a = np.asarray(coefficients[i, t])
        states[i, t] = (a * h if a.ndim == 1 else a @ h) + offsets[i, t]
    return states


def gradients(
    layer: ScanRecurrence, inputs: list[tf.Tensor]
) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = tf.reduce_sum(tf.sin(layer(inputs)))
    return tape.gradient(loss, inputs)


def compiled(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return tf.function(function, autograph=False, **kwargs)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 13, 64], ids=str)
def test_matches_loop_over_time(steps: int, method: str, kind: str) -> None:
    layer = ScanRecurrence(method=method, dtype="float64")
    a, b, h = draw(steps, kind)
    np.testing.assert_allclose(layer([a, b, h]), by_hand(a, b, h), rtol=1e-9)
    zeros = by_hand(a, b, np.zeros_like(h))
    np.testing.assert_allclose(layer([a, b]), zeros, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("steps", [1, 5], ids=str)
def test_gradients_match_finite_differences(
    steps: int, method: str, kind: str
) -> None:
    layer = ScanRecurrence(method=method, dtype="float64")
    inputs = draw(steps, kind)
    point = [x.numpy() for x in inputs]
    for i, gradient in enumerate(gradients(layer, inputs)):
        for index in np.ndindex(*gradient.shape):
            step = np.zeros(gradient.shape)
            step[index] = 1e-6
            up = by_hand(*point[:i], point[i] + step, *point[i + 1 :])
            down = by_hand(*point[:i], point[i] - step, *point[i + 1 :])
            slope = np.sum(np.sin(up) - np.sin(down)) / 2e-6
            assert abs(slope - gradient[index]) < 1e-7


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("method", METHODS)
def test_second_derivatives_match_finite_differences(
    method: str, kind: str
) -> None:
    layer = ScanRecurrence(method=method, dtype="float64")
    inputs = draw(3, kind)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = tf.add_n([tf.nn.l2_loss(g) for g in gradients(layer, inputs)])
    second = tape.gradient(total, inputs)

    def norm(inputs: list[np.ndarray]) -> float:
        return sum(np.sum(np.square(g)) / 2 for g in gradients(layer, inputs))

    for i, gradient in enumerate(second):
        direction = np.random.default_rng(i).normal(size=gradient.shape)
        up, down = (
            [
                x + sign * 1e-5 * direction if i == j else x
                for j, x in enumerate(inputs)
            ]
            for sign in (1, -1)
        )
        slope = (norm(up) - norm(down)) / 2e-5
        np.testing.assert_allclose(
            np.sum(gradient * direction), slope, rtol=1e-5
        )


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("steps", [3, 100], ids=str)
def test_both_methods_agree_in_float32(steps: int, kind: str) -> None:
    inputs = draw(steps, kind, dtype="float32")
    loop, scan = (ScanRecurrence(method=method) for method in METHODS)
    np.testing.assert_allclose(loop(inputs), scan(inputs), atol=1e-5)
    for one, other in zip(
        gradients(loop, inputs), gradients(scan, inputs), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("method", ["loop", "auto"])
def test_takes_any_number_of_steps_in_one_trace(
    method: str, jit_compile: bool
) -> None:
    layer = ScanRecurrence(method=method, dtype="float64")
    shapes = [(None, None, 3), (None, None, 3), (None, 3)]
    run = compiled(
        lambda *inputs: (layer(list(inputs)), gradients(layer, list(inputs))),
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec(shape, "float64") for shape in shapes],
    )
    for steps in (4, 7):
        inputs = draw(steps, "diagonal")
        states, slopes = run(*inputs)
        np.testing.assert_allclose(states, by_hand(*inputs), rtol=1e-9)
        for one, other in zip(slopes, gradients(layer, inputs), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)
    assert run.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("method", METHODS)
def test_gradient_may_be_taken_outside_of_the_compiled_function(
    method: str,
) -> None:
    layer = ScanRecurrence(method=method, dtype="float64")
    inputs = draw(5, "full")
    outside = gradients(compiled(layer, jit_compile=True), inputs)
    for one, other in zip(outside, gradients(layer, inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize(
    ("shape", "has_loop"),
    [((4, 3), False), ((4, 32, 32), False), ((4, 33, 33), True)],
    ids=["diagonal", "narrow", "wide"],
)
def test_auto_scans_what_is_cheap_to_scan(
    shape: tuple[int, ...], has_loop: bool
) -> None:
    specs = [tf.TensorSpec((2, *shape)), tf.TensorSpec((2, *shape[:2]))]
    run = compiled(lambda *inputs: ScanRecurrence()(list(inputs)))
    graph = run.get_concrete_function(*specs).graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert bool(kinds & {"While", "StatelessWhile"}) == has_loop


@pytest.mark.parametrize("method", METHODS)
def test_depth_of_a_scan_is_logarithmic(method: str) -> None:
    def count(steps: int) -> int:
        spec = tf.TensorSpec([2, steps, 3])
        layer = ScanRecurrence(method=method)
        run = compiled(lambda *inputs: layer(list(inputs)))
        graph = run.get_concrete_function(spec, spec).graph
        return len(graph.get_operations())

    # Each doubling adds the same number of operations, or none.
    assert count(128) - count(64) == count(64) - count(32)


def test_traces_once() -> None:
    run = compiled(ScanRecurrence())
    run([tf.zeros([2, 4, 3]), tf.zeros([2, 4, 3])])
    run([tf.ones([2, 4, 3]), tf.ones([2, 4, 3])])
    assert run.experimental_get_tracing_count() == 1


def test_called_on_other_shapes_than_built_for() -> None:
    layer = ScanRecurrence()
    assert layer([tf.zeros([2, 4, 3]), tf.zeros([2, 4, 3])]).shape == (2, 4, 3)
    inputs = [tf.zeros([1, 6, 2, 2]), tf.zeros([1, 6, 2])]
    assert layer(inputs).shape == (1, 6, 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", SHAPES)
def test_no_steps_give_no_states(kind: str, method: str) -> None:
    layer = ScanRecurrence(method=method, dtype="float64")
    inputs = draw(0, kind)
    assert layer(inputs).shape == (2, 0, 3)
    of_coefficients, of_offsets, of_initial = gradients(layer, inputs)
    assert of_coefficients.shape == inputs[0].shape
    assert of_offsets.shape == (2, 0, 3)
    np.testing.assert_array_equal(of_initial, np.zeros((2, 3)))


@pytest.mark.parametrize("batch", [2, None], ids=str)
def test_no_steps_where_their_number_is_unknown(batch: int | None) -> None:
    spec = tf.TensorSpec([batch, None, 3])
    run = compiled(lambda *inputs: ScanRecurrence()(list(inputs)))
    concrete = run.get_concrete_function(spec, spec)
    assert concrete(tf.zeros([2, 0, 3]), tf.zeros([2, 0, 3])).shape == (2, 0, 3)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("argument", [0, 1], ids=["coefficients", "offsets"])
def test_nan_stays_in_its_example_from_its_time_on(
    argument: int, method: str, kind: str
) -> None:
    inputs = [x.numpy() for x in draw(9, kind)]
    clean = by_hand(*inputs)
    inputs[argument][1, 4] = np.nan
    states = ScanRecurrence(method=method, dtype="float64")(inputs)
    np.testing.assert_allclose(states[0], clean[0], rtol=1e-9)
    np.testing.assert_allclose(states[1, :4], clean[1, :4], rtol=1e-9)
    assert np.all(np.isnan(states[1, 4:]))


@pytest.mark.parametrize("method", METHODS)
def test_nan_stays_in_its_value_if_diagonal(method: str) -> None:
    inputs = [x.numpy() for x in draw(9, "diagonal")]
    inputs[1][1, 4, 2] = np.nan
    states = ScanRecurrence(method=method, dtype="float64")(inputs)
    lost = np.zeros(states.shape, bool)
    lost[1, 4:, 2] = True
    np.testing.assert_array_equal(np.isnan(states), lost)


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_states_are_added_up_in_float32(method: str) -> None:
    ones = tf.ones([1, 1000, 1])
    layer = ScanRecurrence(method=method, dtype="mixed_bfloat16")
    states = layer([ones, ones])
    assert states.dtype == tf.bfloat16
    assert states[0, -1, 0] == 1000


def test_trains_what_makes_its_coefficients() -> None:
    x = keras.Input([6, 4])
    decay = keras.layers.Dense(3, activation="sigmoid")(x)
    states = ScanRecurrence()([decay, keras.layers.Dense(3)(x)])
    model = keras.Model(x, keras.layers.Dense(1)(states[:, -1]))
    model.compile("adam", "mse")
    features = np.random.default_rng(0).normal(size=(32, 6, 4))
    history = model.fit(features, features[:, 3, :1], epochs=5, verbose=0)
    losses = history.history["loss"]
    assert losses[-1] < losses[0]


def test_rejects_method() -> None:
    with pytest.raises(ValueError, match="method='fast'"):
        ScanRecurrence(method="fast")


@pytest.mark.parametrize(
    "shapes",
    [
        (None, 4, 3),
        [(None, 4, 3)],
        [(None, 4, 3), (None, 4)],
        [(None, 4, 3), (None, 4, None)],
        [(None, 5, 3), (None, 4, 3)],
        [(None, 4, 2), (None, 4, 3)],
        [(None, 4, 3, 2), (None, 4, 3)],
        [(None, 4), (None, 4, 3)],
        [(None, 4, 3), (None, 4, 3), (None, 4)],
        [(None, 4, 3), (None, 4, 3), (None, 4, 3)],
        [(1, 4, 3), (2, 4, 3)],
        [(2, 4, 3), (None, 4, 3), (1, 3)],
    ],
    ids=str,
)
def test_rejects_shapes(shapes: object) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        ScanRecurrence().build(shapes)


def test_rejects_shapes_of_a_later_call() -> None:
    layer = ScanRecurrence()
    layer([tf.zeros([2, 4, 3]), tf.zeros([2, 4, 3])])
    with pytest.raises(ValueError, match="do not fit"):
        layer([tf.zeros([2, 5, 3]), tf.zeros([2, 4, 3])])


def test_scan_rejects_unknown_number_of_steps() -> None:
    with pytest.raises(ValueError, match="T is unknown"):
        ScanRecurrence(method="scan").build([(None, None, 3)] * 2)


def test_rejects_integers() -> None:
    zeros = tf.zeros([2, 4, 3], tf.int32)
    with pytest.raises(TypeError, match=r"inputs are \['int32', 'int32'\]"):
        ScanRecurrence()([zeros, zeros])


def test_rejects_two_types() -> None:
    layer = ScanRecurrence(autocast=False)
    with pytest.raises(TypeError, match="cast them to one"):
        layer([tf.zeros([2, 4, 3], "float64"), tf.zeros([2, 4, 3])])
