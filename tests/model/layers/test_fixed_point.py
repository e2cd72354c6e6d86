import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from model.layers import _iteration
from model.layers.batched_mat_vec import BatchedMatVec
from model.layers.fixed_point import FixedPoint
from tests.layer_checks import Case

ROOT = Path(__file__).parents[3]


def make_cell(
    groups: int = 3, units: int = 4, gain: float = 0.4
) -> keras.Model:
    dtype = keras.config.dtype_policy().compute_dtype
    h = keras.Input([groups, units], dtype=dtype)
    x = keras.Input([groups, units], dtype=dtype)
    recurrent = BatchedMatVec(
        units,
        use_bias=False,
        kernel_initializer=keras.initializers.Orthogonal(gain),
        name="recurrent",
    )
    return keras.Model([h, x], keras.ops.tanh(recurrent(h) + x))


@keras.saving.register_keras_serializable(package="tests")
class LazyCell(keras.layers.Layer):
    """Makes its variables when it is first called, and counts its calls."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(
            4, kernel_initializer=keras.initializers.Orthogonal(0.4)
        )
        self.num_calls = 0

    def build(self, input_shape: object) -> None:
        del input_shape

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        self.num_calls += 1
        return keras.ops.tanh(self.dense(inputs[0]) + inputs[1])


CASES = [
    Case(
        name="model",
        kwargs=lambda: {"cell": make_cell(), "maximum_iterations": 12},
        input_shape=(8, 3, 4),
        num_variables=1,
    ),
    Case(
        name="unrolled",
        kwargs=lambda: {
            "cell": make_cell(),
            "maximum_iterations": 12,
            "gradient": "unrolled",
            "damping": 0.2,
        },
        input_shape=(8, 3, 4),
        num_variables=1,
    ),
    Case(
        name="accelerated",
        kwargs=lambda: {
            "cell": make_cell(),
            "tolerance": 1e-6,
            "memory": 3,
        },
        input_shape=(8, 3, 4),
        num_variables=1,
    ),
    Case(
        name="lazy_layer",
        kwargs=lambda: {"cell": LazyCell(), "tolerance": 1e-6},
        input_shape=(8, 4),
        num_variables=2,
    ),
]


def solve(
    kernel: np.ndarray, x: np.ndarray, maximum_iterations: int, tolerance: float
) -> tuple[np.ndarray, list[int]]:
    """One example after the other; returns states and numbers of iterations."""
    states, counts = [], []
    for example in x:
        h, k, change = np.zeros_like(example), 0, np.inf
        while k < maximum_iterations and change > tolerance:
            new = np.tanh(np.einsum("nk,nkm->nm", h, kernel) + example)
            h, k, change = new, k + 1, np.max(np.abs(new - h))
        states.append(h)
        counts.append(k)
    return np.stack(states), counts


def make_layer(dtype: str = "float64", **kwargs: object) -> FixedPoint:
    keras.config.set_dtype_policy(dtype)
    layer = FixedPoint(make_cell(gain=0.7), **kwargs)
    keras.config.set_dtype_policy("float32")
    return layer


def make_examples(dtype: str = "float64") -> np.ndarray:
    """Examples of growing size, which take fewer and fewer iterations."""
    x = np.random.default_rng(0).normal(size=(6, 3, 4))
    return (x * np.logspace(-4, 1, 6)[:, None, None]).astype(dtype)


@pytest.mark.parametrize(
    ("maximum_iterations", "tolerance"),
    [(100, 1e-3), (100, 1e-9), (3, 0.0)],
    ids=["loose", "tight", "bounded"],
)
def test_matches_loop_over_examples(
    maximum_iterations: int, tolerance: float
) -> None:
    layer = make_layer(
        maximum_iterations=maximum_iterations, tolerance=tolerance
    )
    x = make_examples()
    expected, counts = solve(
        layer.cell.get_weights()[0], x, maximum_iterations, tolerance
    )
    if maximum_iterations > 3:
        assert len(set(counts)) > 3
        assert max(counts) < maximum_iterations
    np.testing.assert_allclose(layer(x), expected, rtol=0, atol=1e-14)


def test_stops_with_the_last_example() -> None:
    layer = FixedPoint(
        LazyCell(), maximum_iterations=100, tolerance=1e-3, gradient="unrolled"
    )
    x = make_examples("float32")[:, 0]
    layer.build(x.shape)
    layer.cell.num_calls = 0
    layer(x)
    kernel = layer.cell.dense.get_weights()[0]
    _, counts = solve(kernel[None], x[:, None], 100, 1e-3)
    # The accepted state is applied once more, outside the loop.
    assert layer.cell.num_calls == max(counts) + 1


def test_eager_calls_trace_the_loop_once() -> None:
    layer = FixedPoint(LazyCell(), maximum_iterations=100, tolerance=1e-3)
    x = make_examples("float32")[:, 0]
    layer(x)
    layer.cell.num_calls = 0
    layer(x)
    assert layer.cell.num_calls == 1


def test_reports_its_iterations() -> None:
    layer = make_layer(maximum_iterations=6, tolerance=1e-3)
    x = tf.constant(make_examples())
    _, counts = solve(layer.cell.get_weights()[0], x.numpy(), 6, 1e-3)
    _, needed = solve(layer.cell.get_weights()[0], x.numpy(), 100, 1e-3)
    outputs = layer(x)
    changes = np.abs(layer.cell([outputs, x]) - outputs).max(axis=(1, 2))
    model = keras.Sequential([layer])
    reported = {metric.name: metric.result() for metric in model.metrics}
    name = layer.name
    np.testing.assert_allclose(reported[f"{name}_iterations"], np.mean(counts))
    converged = np.mean(np.array(needed) <= 6)
    assert 0 < converged < 1
    np.testing.assert_allclose(reported[f"{name}_converged"], converged)
    assert reported[f"{name}_residual"] > np.mean(changes)


@pytest.mark.parametrize("mode", ["eager", "graph", "jit"])
def test_row_does_not_depend_on_its_batch(mode: str) -> None:
    layer = make_layer("float32", tolerance=1e-4)
    layer.build((None, 3, 4))
    run = layer
    if mode != "eager":
        run = tf.function(layer, autograph=False, jit_compile=mode == "jit")
    x = make_examples("float32")
    together = run(x).numpy()
    for i in range(len(x)):
        # Not alone: for one row the cell takes another product.
        np.testing.assert_array_equal(run(x[[i, 0]])[0], together[i])


def test_accepted_example_is_never_taken_up_again() -> None:
    h, x = keras.Input([1]), keras.Input([1])
    # Changes double: the first example's is small at first, and only then.
    layer = FixedPoint(
        keras.Model([h, x], 2 * h + x), maximum_iterations=5, tolerance=0.1
    )
    outputs = layer(tf.constant([[0.08], [1.0]]))
    np.testing.assert_allclose(outputs, [[0.08], [31.0]])


def test_cell_may_lose_its_static_shape() -> None:
    class Dynamic(keras.layers.Layer):
        def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
            h, x = inputs
            # A mask leaves not even the number of axes known.
            shape = tf.boolean_mask(tf.shape(x), tf.shape(x) > 0)
            return tf.reshape(0.5 * h + x, shape)

        def compute_output_shape(self, shapes: list[object]) -> object:
            return shapes[1]

    layer = FixedPoint(Dynamic())
    run = tf.function(layer, autograph=False)
    spec = tf.TensorSpec([None, 3], tf.float32)
    outputs = run.get_concrete_function(spec)(tf.ones([2, 3]))
    np.testing.assert_allclose(outputs, np.full([2, 3], 2.0), atol=1e-3)


@pytest.mark.parametrize("memory", [0, 3])
def test_not_a_number_stays_visible_and_alone(memory: int) -> None:
    layer = make_layer(maximum_iterations=1000, memory=memory)
    x = make_examples()
    clean = layer(x).numpy()
    x[2, 0, 0] = np.nan
    outputs = layer(x).numpy()
    assert np.isnan(outputs[2]).any()
    np.testing.assert_array_equal(
        np.delete(outputs, 2, 0), np.delete(clean, 2, 0)
    )


def gradients(layer: FixedPoint, x: tf.Tensor) -> list[tf.Tensor]:
    """By the input and by the kernel, of the sum of sines of the output."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(tf.sin(layer(x)))
    return tape.gradient(value, [x, layer.cell.trainable_variables[0].value])


@pytest.mark.parametrize(
    "kwargs",
    [
        {"gradient": "unrolled"},
        {"gradient": "implicit"},
        {"gradient": "implicit", "damping": 0.3},
        {"gradient": "implicit", "memory": 3},
    ],
    ids=["unrolled", "implicit", "damped", "accelerated"],
)
def test_gradients_match_finite_differences(kwargs: dict[str, object]) -> None:
    layer = make_layer(maximum_iterations=120, tolerance=0.0, **kwargs)
    x = tf.constant(make_examples()[3:5])
    kernel = layer.cell.get_weights()[0]

    def loss(x: np.ndarray, kernel: np.ndarray) -> float:
        return np.sum(np.sin(solve(kernel, x, 120, 0.0)[0]))

    point = [x.numpy(), kernel]
    for i, gradient in enumerate(gradients(layer, x)):
        for index in np.ndindex(*gradient.shape):
            step = np.zeros(gradient.shape)
            step[index] = 1e-6
            up = loss(*point[:i], point[i] + step, *point[i + 1 :])
            down = loss(*point[:i], point[i] - step, *point[i + 1 :])
            assert abs((up - down) / 2e-6 - gradient[index]) < 1e-8


def test_gradient_is_solved_to_the_size_of_the_loss() -> None:
    layer = make_layer(tolerance=1e-6)
    x = tf.constant(make_examples()[3:])
    whole = gradients(layer, x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        tiny = 1e-9 * tf.reduce_sum(tf.sin(layer(x)))
    np.testing.assert_allclose(
        1e9 * tape.gradient(tiny, x), whole[0], rtol=1e-6, atol=1e-9
    )


def test_unrolled_keeps_the_iterations_and_implicit_does_not() -> None:
    def num_stacks(gradient: str) -> int:
        layer = FixedPoint(make_cell(), gradient=gradient)
        layer.build((None, 3, 4))
        run = tf.function(lambda x: gradients(layer, x), autograph=False)
        spec = tf.TensorSpec([None, 3, 4], tf.float32)
        graph = run.get_concrete_function(spec).graph.as_graph_def()
        functions = [*graph.library.function]
        nodes = [node for body in functions for node in body.node_def]
        return sum(node.op == "TensorListPushBack" for node in nodes)

    assert num_stacks("unrolled") > 0
    assert num_stacks("implicit") == 0


def test_implicit_has_no_second_derivative() -> None:
    layer = make_layer()
    x = tf.constant(make_examples())
    layer(x)

    @tf.function(autograph=False)
    def second() -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                value = tf.reduce_sum(layer(x) ** 2)
            first = inner.gradient(value, x)
        return outer.gradient(first, x)

    with pytest.raises(LookupError, match="needs gradient='unrolled'"):
        second()


def test_eager_calls_tell_training_from_inference() -> None:
    class Cell(keras.layers.Layer):
        def call(
            self, inputs: list[tf.Tensor], training: bool = False
        ) -> tf.Tensor:
            return (0.5 if training else 0.1) * inputs[0] + inputs[1]

    layer = FixedPoint(Cell(), tolerance=1e-6)
    x = tf.ones([1, 1])
    for training, expected in ((True, 2.0), (False, 1 / 0.9), (True, 2.0)):
        found = layer(x, training=training)
        np.testing.assert_allclose(found, [[expected]], rtol=1e-5)


def test_one_iteration_differentiates_under_xla() -> None:
    layer = make_layer(maximum_iterations=1, gradient="unrolled")
    layer.build((None, 3, 4))
    run = tf.function(
        lambda x: gradients(layer, x), autograph=False, jit_compile=True
    )
    x = tf.constant(make_examples())
    np.testing.assert_allclose(
        run(x)[0], np.cos(np.tanh(x)) / np.cosh(x) ** 2, atol=1e-12
    )


def test_half_precision_stops_at_its_rounding() -> None:
    """Where nothing less than no change would be below the tolerance."""
    layer = FixedPoint(make_cell(), tolerance=1e-6, dtype="mixed_bfloat16")
    layer(tf.random.stateless_normal([64, 3, 4], (1, 2)))
    iterations, _, converged = (m.result() for m in layer.convergence)
    assert converged == 1
    assert iterations < 15


def linear_layer(slope: float, **kwargs: object) -> FixedPoint:
    """Its cell is `slope · h + x`; the fixed point is `x / (1 - slope)`."""
    h, x = keras.Input([1]), keras.Input([1])
    return FixedPoint(keras.Model([h, x], slope * h + x), **kwargs)


def test_damping_calms_an_oscillation() -> None:
    x = tf.constant([[1.0], [-2.0]])
    wild = linear_layer(-1.2, maximum_iterations=60)(x)
    calm = linear_layer(-1.2, maximum_iterations=60, damping=0.5)(x)
    assert np.max(np.abs(wild)) > 100
    np.testing.assert_allclose(calm, x / 2.2, atol=1e-3)


def test_acceleration_needs_fewer_iterations() -> None:
    x = make_examples()
    counts = []
    for memory in (0, 8):
        layer = make_layer(
            maximum_iterations=2000, tolerance=1e-9, memory=memory
        )
        layer.cell.set_weights([0.97 * layer.cell.get_weights()[0] / 0.7])
        expected, _ = solve(layer.cell.get_weights()[0], x, 5000, 1e-12)
        np.testing.assert_allclose(layer(x), expected, rtol=0, atol=1e-6)
        counts.append(float(layer.convergence[0].result()))
    assert counts[1] < 0.7 * counts[0]


def test_accelerated_row_does_not_depend_on_its_batch() -> None:
    layer = make_layer(tolerance=1e-8, memory=3)
    x = make_examples()
    together = layer(x)
    for i in range(len(x)):
        np.testing.assert_allclose(
            layer(x[i : i + 1])[0], together[i], rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("mode", ["eager", "graph", "jit"])
@pytest.mark.parametrize("gradient", ["implicit", "unrolled"])
def test_nested_loop_in_the_cell(mode: str, gradient: str) -> None:
    """A cell that is a loop itself, with a raw weight of its own."""

    class Twice(keras.layers.Layer):
        def build(self, shapes: object) -> None:
            del shapes
            self.scale = self.add_weight(shape=(), initializer="ones")

        def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
            h, x = inputs
            return tf.while_loop(
                lambda k, h: k < 2,
                lambda k, h: (k + 1, 0.5 * self.scale * h + x),
                (0, h),
                maximum_iterations=2,
            )[1]

        def compute_output_shape(self, shapes: list[object]) -> object:
            return shapes[1]

    layer = FixedPoint(Twice(), tolerance=1e-7, gradient=gradient)
    layer.build((None, 3))
    x = tf.constant([[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]])

    def run(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x)
        scale = layer.cell.scale.value
        return [outputs, *tape.gradient(outputs, [x, scale])]

    if mode != "eager":
        run = tf.function(run, autograph=False, jit_compile=mode == "jit")
    outputs, of_x, of_scale = run(x)
    # h = 2 x, where h = s h / 2 + x has the derivative h / 2 / (1 - s / 2).
    np.testing.assert_allclose(outputs, 2 * x, rtol=1e-5)
    np.testing.assert_allclose(of_x, np.full([2, 3], 2.0), rtol=1e-5)
    np.testing.assert_allclose(of_scale, np.sum(2 * x), rtol=1e-5)


@pytest.mark.parametrize("mode", ["eager", "graph", "jit"])
def test_fixed_count_matches_closed_form(mode: str) -> None:
    """Three turns of `h <- A h + tanh(h) + x`, which is no contraction."""
    matrix = np.random.default_rng(0).normal(size=(4, 4))
    h, x = keras.Input([4], dtype="float64"), keras.Input([4], dtype="float64")
    dense = keras.layers.Dense(4, use_bias=False, dtype="float64")
    cell = keras.Model([h, x], dense(h) + keras.ops.tanh(h) + x)
    cell.set_weights([matrix.T])
    layer = FixedPoint(
        cell,
        maximum_iterations=3,
        tolerance=0.0,
        gradient="unrolled",
        dtype="float64",
    )
    layer.build((None, 4))

    def run(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x)
        return outputs, tape.gradient(outputs, x)

    if mode != "eager":
        run = tf.function(run, autograph=False, jit_compile=mode == "jit")
    x = np.array([0.1, -0.2, 0.3, 0.4])
    outputs, of_x = run(tf.constant(x[None]))
    expected, derivative = np.zeros(4), np.zeros((4, 4))
    for _ in range(3):
        slope = matrix + np.diag(1 - np.tanh(expected) ** 2)
        derivative = slope @ derivative + np.eye(4)
        expected = matrix @ expected + np.tanh(expected) + x
    np.testing.assert_allclose(outputs[0], expected, rtol=1e-10)
    np.testing.assert_allclose(of_x[0], derivative.sum(axis=0), rtol=1e-10)


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [("bfloat16", "float32"), ("float32", "float32"), ("float64", "float64")],
)
def test_change_is_measured_in_a_wide_type(dtype: str, wide: str) -> None:
    new = tf.constant([[1.0, -3.0], [0.0, 0.0]], dtype)
    old = tf.constant([[1.0, -1 / 256], [0.0, 0.5]], dtype)
    change = _iteration.largest_change(new, old)
    assert change.dtype == wide
    # In bfloat16 the first would be 3.
    np.testing.assert_array_equal(change, [3 - 1 / 256, 0.5])


def test_cell_may_compute_in_another_type() -> None:
    layer = FixedPoint(make_cell(), dtype="mixed_bfloat16")
    assert layer(make_examples("float32")).dtype == tf.bfloat16


def test_traces_once() -> None:
    layer = FixedPoint(make_cell())
    layer.build((None, 3, 4))
    compiled = tf.function(layer, autograph=False)
    compiled(tf.zeros([2, 3, 4]))
    compiled(tf.ones([2, 3, 4]))
    assert compiled.experimental_get_tracing_count() == 1


def test_loads_in_a_new_process_that_imports_the_layers(tmp_path: Path) -> None:
    inputs = keras.Input([3, 4])
    model = keras.Model(inputs, FixedPoint(make_cell())(inputs))
    x = make_examples("float32")
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "x.npy", x)
    script = f"""
import keras, numpy
try:
    keras.saving.load_model({str(tmp_path / "model.keras")!r})
except TypeError:
    print("not without the import")
import model.layers.batched_mat_vec
import model.layers.fixed_point
loaded = keras.saving.load_model({str(tmp_path / "model.keras")!r})
x = numpy.load({str(tmp_path / "x.npy")!r})
numpy.save({str(tmp_path / "y.npy")!r}, loaded(x))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not without the import" in done.stdout
    y = np.load(tmp_path / "y.npy")
    np.testing.assert_allclose(y, model(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"maximum_iterations": 0}, "maximum_iterations=0"),
        ({"maximum_iterations": 1.5}, "maximum_iterations=1.5"),
        ({"tolerance": -1.0}, "tolerance=-1.0"),
        ({"tolerance": float("nan")}, "tolerance=nan"),
        ({"tolerance": float("inf")}, "tolerance=inf"),
        ({"tolerance": "1e-3"}, "tolerance='1e-3'"),
        ({"maximum_iterations": True}, "maximum_iterations=True"),
        ({"tolerance": 0}, "tolerance=0.*give maximum_iterations"),
        ({"damping": 1.0}, "damping=1.0"),
        ({"memory": -1}, "memory=-1"),
        ({"gradient": "none"}, "gradient='none'.*implicit or unrolled"),
        (
            {"gradient": "unrolled", "memory": 2},
            "memory=2.*needs gradient='implicit'",
        ),
    ],
    ids=[
        "no_iterations",
        "fraction",
        "negative",
        "not_a_number",
        "infinite",
        "text",
        "bool",
        "endless",
        "damping",
        "memory",
        "gradient",
        "unrolled_memory",
    ],
)
def test_rejects_settings(kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FixedPoint(make_cell(), **kwargs)


def test_rejects_cell_that_is_no_layer() -> None:
    with pytest.raises(TypeError, match="must be a Keras layer"):
        FixedPoint(tf.tanh)


def test_rejects_rank_one_input() -> None:
    with pytest.raises(ValueError, match="of two axes or more"):
        FixedPoint(make_cell()).build((None,))


def test_rejects_cell_that_changes_the_shape() -> None:
    cell = keras.layers.Concatenate()
    with pytest.raises(ValueError, match="must return one tensor of the shape"):
        FixedPoint(cell).build((None, 4))


def test_rejects_cell_that_loses_precision() -> None:
    layer = FixedPoint(make_cell(), dtype="float64")
    with pytest.raises(ValueError, match="casts its inputs to float32"):
        layer.build((None, 3, 4))


def test_rejects_integers() -> None:
    with pytest.raises(TypeError, match="input is int32"):
        FixedPoint(make_cell())(tf.zeros([2, 3, 4], tf.int32))
