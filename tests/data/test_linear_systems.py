import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import linear_systems
from errors import RequestError


def _config(argument: str) -> DataConfig:
    return DataConfig(dataset=f"linear_systems:{argument}")


def _system(
    size: int, split: str, index: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    features, solution = linear_systems.example(
        _config(f"size={size}"), split, tf.constant(index, tf.int64)
    )
    parts = features["matrix"], features["vector"], solution
    return tuple(part.numpy().astype(np.float64) for part in parts)


@pytest.mark.parametrize("size", [1, 2, 16, 64])
@pytest.mark.parametrize("index", [0, 7, 99_999])
def test_solution_solves_the_system(size: int, index: int) -> None:
    matrix, vector, solution = _system(size, "train", index)

    np.testing.assert_allclose(
        np.linalg.solve(matrix, vector), solution, atol=1e-4
    )
    np.testing.assert_array_equal(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > 0


@pytest.mark.parametrize("index", range(5))
def test_scaling_by_the_diagonal_helps(index: int) -> None:
    matrix, _, _ = _system(16, "train", index)
    scale = np.diag(matrix) ** -0.5

    scaled = scale[:, None] * matrix * scale

    assert np.linalg.cond(matrix) > 50
    assert np.linalg.cond(scaled) < 10
    # The same rows are large in every system: a fixed scaling can be learned.
    assert np.diag(matrix)[-1] > 20 * np.diag(matrix)[0]


def test_index_and_split_fix_the_system() -> None:
    tf.random.set_seed(1)
    first = _system(4, "train", 3)
    tf.random.set_seed(2)

    np.testing.assert_array_equal(first[0], _system(4, "train", 3)[0])
    for split, index in (("train", 4), ("eval", 3)):
        assert not np.isin(first[0], _system(4, split, index)[0]).any()


def test_example_is_what_info_says() -> None:
    config = _config("size=3,examples=50")

    info = linear_systems.info(config)

    features, labels = linear_systems.example(
        config, "eval", tf.constant(0, tf.int64)
    )
    assert info.task == "regression"
    assert info.num_examples == {"train": 50, "eval": 1}
    assert info.features.keys() == features.keys()
    for name, spec in info.features.items():
        assert spec == tf.TensorSpec.from_tensor(features[name])
    assert info.labels == tf.TensorSpec.from_tensor(labels)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("size=0", "size=0.*1 or more"),
        ("examples=0", "examples=0.*1 or more"),
        ("shape=3", "unknown key 'shape'"),
    ],
)
def test_rejects_bad_options(argument: str, message: str) -> None:
    with pytest.raises(RequestError, match=f"--dataset.*{message}"):
        linear_systems.info(_config(argument))
