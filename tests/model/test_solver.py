from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import train
from data import DataConfig
from data import linear_systems
from errors import RequestError
from flags.command_line import Configs
from model import ModelConfig
from model import solver
from model.layers.conjugate_gradient import ConjugateGradient
from strategies import StrategyConfig
from training import RunConfig
from training import TrainConfig

SIZE = 16
DATA = DataConfig(dataset=f"linear_systems:size={SIZE}")


def spec(matrix: tuple[int, ...], vector: tuple[int, ...]) -> tuple:
    features = {
        "matrix": tf.TensorSpec([None, *matrix], tf.float32),
        "vector": tf.TensorSpec([None, *vector], tf.float32),
    }
    return features, tf.TensorSpec([None, *vector], tf.float32), None


def build(*words: str, size: int = 3) -> keras.Model:
    config = ModelConfig(model="solver", model_options=words)
    return solver.build(config, spec((size, size), (size,)), size)


def unseen(count: int) -> dict[str, tf.Tensor]:
    systems = [
        linear_systems.example(DATA, "eval", tf.constant(index, tf.int64))[0]
        for index in range(count)
    ]
    return {
        name: tf.stack([system[name] for system in systems])
        for name in ("matrix", "vector")
    }


def median_iterations(
    layer: ConjugateGradient, systems: dict[str, tf.Tensor]
) -> float:
    """Counts from the outside, in float64, until a residual of 1e-4."""
    matrix, vector = systems["matrix"], systems["vector"]
    iterates = layer([matrix, vector]).numpy().astype("float64")
    left = vector[:, None] - np.einsum("bij,btj->bti", matrix, iterates)
    relative = np.linalg.norm(left, axis=-1) / np.linalg.norm(
        vector[:, None], axis=-1
    )
    solved = relative <= 1e-4
    assert solved[:, -1].all()
    return float(np.median(np.argmax(solved, axis=1) + 1))


def test_learns_to_need_fewer_iterations(tmp_path: Path) -> None:
    """What its docstring says, figures included."""
    metrics = train.run(
        Configs(
            RunConfig(model_dir=str(tmp_path)),
            StrategyConfig(),
            DATA,
            ModelConfig(model="solver"),
            TrainConfig(
                train_steps=500,
                learning_rate=0.05,
                callbacks=(),
                export=("keras",),
            ),
        )
    )
    trained = keras.saving.load_model(tmp_path / "export" / "model.keras")
    systems = unseen(200)
    learned = trained.get_layer("conjugate_gradient")
    counts = {"learned": median_iterations(learned, systems)}
    for name in ("none", "jacobi"):
        layer = ConjugateGradient(
            maximum_iterations=64,
            tolerance=1e-5,
            preconditioner=name,
            return_iterates=True,
        )
        counts[name] = median_iterations(layer, systems)
    assert counts["learned"] <= 0.9 * counts["none"]
    assert f"median of {counts['learned']:.0f} iterations" in solver.__doc__
    assert f"preconditioner {counts['none']:.0f}," in solver.__doc__
    assert f"matrix, {counts['jacobi']:.0f}." in solver.__doc__
    assert metrics["conjugate_gradient_converged"] == 1
    # The scale of the rows is known: it grows over two decades.
    log_scale = learned.get_weights()[0] / np.log(10)
    expected = -np.linspace(-1, 1, SIZE)
    shift = np.mean(log_scale - expected)
    np.testing.assert_allclose(log_scale, expected + shift, atol=0.3)


def test_loss_counts_digits_of_all_iterates() -> None:
    labels = tf.zeros([2, 4])
    errors = [[0.1, 0.001], [1.0, 10.0]]
    iterates = tf.ones([2, 2, 4]) * tf.constant(errors)[..., tf.newaxis]
    loss = solver.per_example_loss(labels, iterates)
    np.testing.assert_allclose(loss, [-2.0, 0.5], atol=1e-5)
    (metric,) = solver.make_metrics()
    metric.update_state(labels, iterates, sample_weight=tf.constant([1.0, 0]))
    np.testing.assert_allclose(metric.result(), 0.001, rtol=1e-5)


def test_last_iterate_is_the_solution() -> None:
    model = build("tolerance=1e-6", "maximum_iterations=9")
    matrix = np.diag([1.0, 2.0, 4.0]).astype("float32")[None]
    vector = np.ones([1, 3], "float32")
    iterates = model({"matrix": matrix, "vector": vector})
    assert iterates.shape == (1, 9, 3)
    np.testing.assert_allclose(iterates[0, -1], [1, 0.5, 0.25], atol=1e-6)


def test_computes_in_full_precision() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    assert build().output.dtype == "float32"


@pytest.mark.parametrize(
    ("features", "num_outputs"),
    [
        (tf.TensorSpec([None, 8, 8, 1], tf.float32), 10),
        (spec((3, 4), (4,))[0], 4),
        (spec((3, 3), (3,))[0], 2),
        ({"matrix": tf.TensorSpec([None, 3, 3], tf.float32)}, 3),
    ],
    ids=["image", "not_square", "labels", "no_vector"],
)
def test_refuses_what_is_no_system(features: object, num_outputs: int) -> None:
    config = ModelConfig(model="solver")
    with pytest.raises(RequestError, match="use --dataset=linear_systems"):
        solver.build(config, (features, None, None), num_outputs)


@pytest.mark.parametrize("word", ["maximum_iterations=0", "tolerance=-1"])
def test_rejects_options(word: str) -> None:
    with pytest.raises(RequestError, match=word.partition("=")[0]):
        build(word)
