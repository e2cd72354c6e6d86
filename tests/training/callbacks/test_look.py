from collections.abc import Callable
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainConfig
from training import state as state_lib
from training.callbacks import Context
from training.callbacks import _look
from training.callbacks import _picture

LABELS = tf.constant([0, 1, 1])
LOGITS = tf.constant([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
IMAGES = tf.zeros([3, 4, 4, 1])
VECTORS = tf.zeros([3, 5])


@pytest.mark.parametrize(
    ("features", "labels", "outputs", "expected"),
    [
        (IMAGES, LABELS, LOGITS, {"confusion_matrix", "images"}),
        (VECTORS, LABELS, LOGITS, {"confusion_matrix"}),
        (VECTORS, LABELS, tf.zeros([3, 101]), set()),
        (VECTORS, VECTORS, VECTORS + 1, {"predicted_against_true"}),
        (VECTORS, VECTORS, tf.zeros([3, 7, 5]), {"predicted_against_true"}),
        (VECTORS, VECTORS, VECTORS / 0, set()),
        (VECTORS, VECTORS, LOGITS, set()),
        (tf.zeros([3, 4, 4, 2]), LABELS, LOGITS, {"confusion_matrix"}),
        (VECTORS, tf.zeros([3, 5], tf.int32), tf.zeros([3, 5, 9]), set()),
        # Classes of a sequence are no numbers, whatever shape outputs have.
        (VECTORS, tf.zeros([3, 5], tf.int32), VECTORS, set()),
        (IMAGES, tf.zeros([3, 5], tf.int32), None, {"images"}),
        (VECTORS, tf.zeros([3]), tf.zeros([3, 1]), {"predicted_against_true"}),
        (VECTORS, tf.zeros([3, 1]), tf.zeros([3]), {"predicted_against_true"}),
        ({"a": VECTORS}, LABELS, LOGITS, {"confusion_matrix"}),
        (VECTORS, LABELS, {"a": LOGITS}, set()),
        (VECTORS, {"a": LABELS}, LOGITS, set()),
    ],
)
def test_draws_what_can_be_drawn(features, labels, outputs, expected) -> None:
    pictures = _look.draw(features, labels, outputs)
    assert set(pictures) == {f"predictions/{name}" for name in expected}
    for picture in pictures.values():
        assert picture.dtype == np.uint8
        assert picture.shape[2] == 3


def test_counts_and_captions(monkeypatch) -> None:
    seen = []
    for name in ("confusion_matrix", "examples"):
        monkeypatch.setattr(_picture, name, lambda *given: seen.append(given))
    _look.draw(IMAGES, LABELS, LOGITS)
    (counts,), (_, captions, wrong) = seen
    np.testing.assert_array_equal(counts, [[1, 0], [1, 1]])
    assert captions == ["0", "1", "0 not 1"]
    assert wrong == [False, False, True]


def test_of_iterates_the_last_is_drawn(monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(_picture, "scatter", lambda *given: seen.append(given))
    iterates = tf.reshape(tf.range(12.0), [3, 2, 2])
    _look.draw(VECTORS, tf.ones([3, 2]), iterates)
    ((true, predicted),) = seen
    assert true.tolist() == [1] * 6
    assert predicted.tolist() == [2, 3, 6, 7, 10, 11]


def _make_context(
    strategy: tf.distribute.Strategy,
    sample: Callable[[int], tuple[tf.Tensor, tf.Tensor]],
) -> Context:
    with strategy.scope():
        inputs = keras.Input([5])
        dense = keras.layers.Dense(2, kernel_initializer="zeros", name="dense")
        model = keras.Model(inputs, dense(inputs))
        state = state_lib.create(model, TrainConfig())
    config = {"data": {"global_batch_size": 4}}
    return Context(
        state, "", True, 0, 8, strategy, config=config, sample=sample
    )


def test_reads_once_and_looks_anew(strategy_of) -> None:
    asked = []

    def sample(num_examples: int) -> tuple[tf.Tensor, tf.Tensor]:
        asked.append(num_examples)
        return VECTORS, LABELS

    context = _make_context(strategy_of(2), sample)
    look = _look.make(context)
    dense = context.state.model.get_layer("dense")
    first, graph = look()
    assert "dense/kernel" in {node.name for node in graph.node}
    dense.bias.assign([0.0, 1.0])  # all of class 1
    second, graph = look()
    assert graph is None
    assert asked == [512]
    tag = "predictions/confusion_matrix"
    assert (first[tag] != second[tag]).any()


@pytest.mark.parametrize(
    ("labels", "sizes"),
    [(LABELS, [2, 1]), (tf.zeros([3, 5], tf.int32), [])],
    ids=["classes", "sequences"],
)
def test_computes_a_replicas_part_of_what_is_drawn(
    strategy_of, monkeypatch, labels, sizes
) -> None:
    context = _make_context(strategy_of(2), lambda _: (VECTORS, labels))
    computed = []
    predict = _look.LocalModel.predict

    def spy(self, features: tf.Tensor) -> tf.Tensor:
        computed.extend(len(part) for part in self._parts(features))
        return predict(self, features)

    monkeypatch.setattr(_look.LocalModel, "predict", spy)
    _, graph = _look.make(context)()
    assert computed == sizes
    assert graph is not None


@pytest.mark.parametrize("device", ["/device:TPU:0", None], ids=["tpu", "none"])
def test_draws_nothing(device) -> None:
    strategy = sample = None
    if device:
        extended = SimpleNamespace(worker_devices=[device])
        strategy, sample = SimpleNamespace(extended=extended), list
    context = Context(None, "", True, 0, 8, strategy=strategy, sample=sample)
    assert _look.make(context)() == ({}, None)
