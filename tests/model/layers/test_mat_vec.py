import numpy as np
import pytest
import tensorflow as tf

from model.layers.mat_vec import MatVec
from model.layers.mat_vec import matvec
from tests.layer_checks import Case

CASES = [
    Case(
        name="square",
        kwargs=dict,
        input_shape=[(8, 4, 4), (8, 4)],
        num_variables=0,
    ),
    Case(
        name="leading_axes",
        kwargs=dict,
        input_shape=[(8, 2, 3, 4), (8, 2, 4)],
        num_variables=0,
    ),
]


@pytest.mark.parametrize(
    "leading", [(), (6,), (2, 3)], ids=["none", "one", "two"]
)
def test_matvec_matches_numpy(leading: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    matrix = random.normal(size=(*leading, 4, 5))
    vector = random.normal(size=(*leading, 5))
    found = matvec(tf.constant(matrix), tf.constant(vector))
    expected = np.einsum("...mk,...k->...m", matrix, vector)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_matvec_makes_nothing_larger_than_its_gradients() -> None:
    """Forward, by the matrix and by the vector: three products, no more."""

    def run(matrix: tf.Tensor, vector: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([matrix, vector])
            outputs = matvec(matrix, vector)
        return tape.gradient(outputs, [matrix, vector], outputs)

    specs = [tf.TensorSpec([None, 4, 5]), tf.TensorSpec([None, 5])]
    graph = tf.function(run, autograph=False).get_concrete_function(*specs)
    shapes = [
        output.shape.as_list()
        for operation in graph.graph.get_operations()
        for output in operation.outputs
        if output.shape.rank == 3 and 1 not in output.shape[1:]
    ]
    products = [
        operation
        for operation in graph.graph.get_operations()
        if "MatMul" in operation.type
    ]
    assert len(products) == 3
    assert shapes
    assert all(shape[1:] == [4, 5] for shape in shapes)
    random = np.random.default_rng(0)
    matrix = random.normal(size=(6, 4, 5)).astype("float32")
    vector = random.normal(size=(6, 5)).astype("float32")
    of_matrix, of_vector = run(tf.constant(matrix), tf.constant(vector))
    outputs = np.einsum("bmk,bk->bm", matrix, vector)
    expected = outputs[:, :, None] * vector[:, None, :]
    np.testing.assert_allclose(of_matrix, expected, rtol=1e-4, atol=1e-5)
    expected = np.einsum("bmk,bm->bk", matrix, outputs)
    np.testing.assert_allclose(of_vector, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("matrices", "vectors"),
    [
        ((2, 3, 4), (4,)),
        ((4,), ()),
        ((2, 3, 4), (2, 3)),
        ((2, 3, 4), (3, 4)),
    ],
    ids=["ranks", "rank", "lengths", "batches"],
)
def test_rejects_shapes_that_do_not_fit(
    matrices: tuple[int, ...], vectors: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="matvec: matrices of shape"):
        matvec(tf.zeros(matrices), tf.zeros(vectors))
    with pytest.raises(ValueError, match="mat_vec: matrices of shape"):
        MatVec(name="mat_vec").build([matrices, vectors])


def test_rejects_one_input() -> None:
    with pytest.raises(ValueError, match=r"call it on \[matrices, vectors\]"):
        MatVec().build((None, 3))


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        (("float32", "float64"), "float32 and vectors float64"),
        (("int32", "int32"), "matrices is int32"),
    ],
    ids=["different", "integers"],
)
def test_rejects_dtypes(dtypes: tuple[str, str], message: str) -> None:
    arguments = tf.zeros([2, 3, 4], dtypes[0]), tf.zeros([2, 4], dtypes[1])
    with pytest.raises(TypeError, match=message):
        matvec(*arguments)
    if dtypes[0] == "int32":
        with pytest.raises(TypeError, match=message):
            MatVec()(list(arguments))
