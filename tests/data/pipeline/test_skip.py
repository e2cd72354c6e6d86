import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data.pipeline import distribute
from data.pipeline import prepare
from data.pipeline import skip
from errors import RequestError
from tests.data.pipeline import datasets
from tests.data.pipeline import layouts

BAD = (3, 4, 11, 17)
# Plain arrays are the kind in which nothing can fail.
KINDS = pytest.mark.parametrize("kind", datasets.KINDS[1:])
SKIP = DataConfig(dataset="mine", global_batch_size=8, skip_bad_examples=9)
NO_SKIP = DataConfig(dataset="mine", global_batch_size=8)


def _prepare(
    module: Any, config: DataConfig, split: str
) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    if split == "eval":
        return functools.partial(prepare.eval_dataset, module, config)
    return functools.partial(
        prepare.train_dataset, module, config, seed=5, step=2
    )


def _write(path: Path, numbers: range) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in numbers:
            writer.write(str(number).zfill(4).encode())
    return str(path)


def _damage(path: str, record: int) -> None:
    """Flips a bit in the content of one of a file's records, of 20 bytes."""
    content = bytearray(Path(path).read_bytes())
    content[20 * record + 13] ^= 1
    Path(path).write_bytes(content)


def _numbers(source: tf.data.Dataset, num_examples: int) -> list[int]:
    """Reads what `keep_places` gives; -1 where it was lost."""
    rows = skip.keep_places(source, num_examples).as_numpy_iterator()
    return [int(element) if weight else -1 for element, weight in rows]


@pytest.mark.parametrize("kind", ["arrays_preprocess", "example", "source"])
@pytest.mark.parametrize(
    ("num_workers", "num_replicas"), [(1, 1), (1, 4), (2, 2)]
)
@pytest.mark.parametrize("split", ["train", "eval"])
def test_bad_rows_are_zeros_of_weight_0_and_all_others_keep_their_place(
    kind: str, num_workers: int, num_replicas: int, split: str
) -> None:
    good, some_bad = (datasets.make(kind, 18, 18, bad=b) for b in ((), BAD))
    one_device = _prepare(good, NO_SKIP, split)

    batches = layouts.global_batches(
        _prepare(some_bad, SKIP, split), num_workers, num_replicas, 3
    )

    expected = one_device(tf.distribute.InputContext()).take(3)
    for batch, right in zip(batches, expected.as_numpy_iterator(), strict=True):
        features, labels, weights = right
        kept = weights * ~np.isin(abs(labels), BAD)
        np.testing.assert_array_equal(batch[2], kept)
        np.testing.assert_array_equal(batch[1], labels * (kept > 0))
        np.testing.assert_array_equal(batch[0], features * kept[:, np.newaxis])
    assert any((batch[2] == 0).any() for batch in batches)


@pytest.mark.parametrize("kind", datasets.KINDS)
def test_nothing_changes_when_all_is_well(kind: str) -> None:
    module = datasets.make(kind, 18)

    ours, plain = (
        layouts.global_batches(_prepare(module, config, "train"), 1, 2, 5)
        for config in (SKIP, NO_SKIP)
    )

    for received, right in zip(ours, plain, strict=True):
        for part, right_part in zip(received, right, strict=True):
            np.testing.assert_array_equal(part, right_part)


@KINDS
def test_shapes_stay_static(kind: str) -> None:
    module, context = datasets.make(kind, 18), tf.distribute.InputContext()

    ours, plain = (
        _prepare(module, config, "train")(context) for config in (SKIP, NO_SKIP)
    )

    assert ours.element_spec == plain.element_spec
    assert ours.cardinality() == tf.data.INFINITE_CARDINALITY


def test_batches_reach_two_replicas(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    strategy, module = strategy_of(2), datasets.make("source", 18, bad=BAD)
    iterator = iter(
        distribute.train_dataset(strategy, module, SKIP, seed=5, step=0)
    )

    rows = [next(iterator) for _ in range(9)]

    weights = [strategy.experimental_local_results(row[2]) for row in rows]
    # Four epochs of 18.
    assert np.sum(weights) == 72 - 4 * len(BAD)


def test_nothing_is_decoded_where_all_is_bad() -> None:
    module = datasets.make("source", 18, bad=range(18))

    dataset = _prepare(module, SKIP, "train")(tf.distribute.InputContext())

    for features, labels, weights in dataset.take(5):
        assert not np.any(features)
        assert not np.any(labels)
        assert not np.any(weights)


def test_a_bad_example_of_another_shape_is_skipped() -> None:
    module = datasets.make("example", 18)
    example = module.example

    def uneven(config: DataConfig, split: str, index: tf.Tensor) -> tuple:
        features, label = example(config, split, index)
        return tf.repeat(features, tf.where(index == 3, 2, 1)), label

    module.example = uneven
    batches = layouts.global_batches(_prepare(module, SKIP, "train"), 1, 1, 9)

    labels, weights = (np.concatenate([b[i] for b in batches]) for i in (1, 2))
    assert sorted(set(labels[weights > 0])) == [0, 1, 2, *range(4, 18)]
    assert (weights == 0).sum() == 4


def test_python_that_raises_is_skipped() -> None:
    module = datasets.make("example_preprocess", 18)

    def preprocess(config: DataConfig, split: str, element: tuple) -> tuple:
        def refuse(label: np.ndarray) -> np.ndarray:
            if label in BAD:
                raise KeyError(f"no {label}")
            return label

        features, label = element
        return features, tf.ensure_shape(
            tf.numpy_function(refuse, [label], tf.int64), []
        )

    module.preprocess = preprocess
    (batch,) = layouts.global_batches(_prepare(module, SKIP, "train"), 1, 1, 1)

    assert (batch[2] == 0).sum() == np.isin(
        layouts.global_batches(
            _prepare(datasets.make("arrays", 18), NO_SKIP, "train"), 1, 1, 1
        )[0][1],
        BAD,
    ).sum()


def test_a_gap_in_a_source_keeps_its_place() -> None:
    texts = ["x", "1", "2", "x", "x", "5", "x"]
    source = tf.data.Dataset.from_tensor_slices(texts).map(
        tf.strings.to_number, num_parallel_calls=2
    )

    assert _numbers(source, 7) == [-1, 1, 2, -1, -1, 5, -1]


def test_a_damaged_record_loses_the_rest_of_its_file(tmp_path: Path) -> None:
    paths = [
        _write(tmp_path / str(first), range(first, first + 4))
        for first in (0, 4, 8)
    ]
    _damage(paths[1], 1)
    source = tf.data.TFRecordDataset(paths).map(tf.strings.to_number)

    # What TensorFlow gives: one error for the three records that are lost.
    assert len(list(source.ignore_errors())) == 9
    assert _numbers(source, 12) == [0, 1, 2, 3, 4, -1, 8, 9, 10, 11, -1, -1]


def test_a_cut_off_file_loses_its_last_record(tmp_path: Path) -> None:
    path = _write(tmp_path / "0", range(4))
    Path(path).write_bytes(Path(path).read_bytes()[:-3])
    source = tf.data.TFRecordDataset(path).map(tf.strings.to_number)

    assert _numbers(source, 4) == [0, 1, 2, -1]


def test_a_missing_file_loses_all_behind_it(tmp_path: Path) -> None:
    paths = [_write(tmp_path / "0", range(4)), str(tmp_path / "none")]
    paths.append(_write(tmp_path / "1", range(8, 12)))
    source = tf.data.TFRecordDataset(paths).map(tf.strings.to_number)

    # TensorFlow alone would try the missing file for ever.
    assert _numbers(source, 12) == [0, 1, 2, 3, *[-1] * 8]


def test_a_generator_that_raises_loses_its_rest() -> None:
    def generate() -> Any:
        yield from range(3)
        raise OSError("gone")

    source = tf.data.Dataset.from_generator(
        generate, output_signature=tf.TensorSpec([], tf.int64)
    )

    assert _numbers(source, 5) == [0, 1, 2, -1, -1]


def test_a_source_without_elements_still_ends() -> None:
    source = tf.data.TFRecordDataset("none").map(tf.strings.to_number)

    assert _numbers(source, 5) == [-1] * 5


def test_lost_elements_may_have_any_structure() -> None:
    def pair(number: tf.Tensor) -> Any:
        text = tf.where(number == 1, "x", tf.strings.as_string(number))
        value = tf.strings.to_number(text)
        return {"a": tf.fill([number], value)}, (text, tf.cast(value, tf.int32))

    source = tf.data.Dataset.range(3).map(pair)

    element, weight = list(skip.keep_places(source, 3))[1]

    a, text, value = tf.nest.flatten(element)
    assert (a.shape, a.dtype, value.dtype) == ([0], tf.float32, tf.int32)
    assert (text, value, weight) == (b"", 0, 0)


def test_refuses_a_source_of_other_than_tensors() -> None:
    source = tf.data.Dataset.from_tensors(tf.ragged.constant([[1], []]))

    with pytest.raises(RequestError, match=r"--skip_bad_examples.*Ragged"):
        skip.keep_places(source, 1)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 128, 129, 200])
def test_sources_of_any_length_keep_their_places(length: int) -> None:
    numbers = list(range(length))
    source = tf.data.Dataset.range(length)
    assert _numbers(source, length) == numbers
    # What there is too much of is left out, what is missing is lost.
    assert _numbers(source, length + 3) == [*numbers, -1, -1, -1]
    assert _numbers(source.concatenate(source), length) == numbers

    texts = ["x" if number % 7 == 0 else str(number) for number in numbers]
    gaps = tf.data.Dataset.from_tensor_slices(tf.constant(texts, tf.string))
    gaps = gaps.map(tf.strings.to_number)

    expected = [number if number % 7 else -1 for number in numbers]
    assert _numbers(gaps, length) == expected


def test_files_of_a_worker_skip_what_cannot_be_decoded() -> None:
    module = datasets.make("source", 16, bad=[3, 4])
    config = DataConfig(
        dataset="mine",
        global_batch_size=8,
        shard_by="files",
        skip_bad_examples=9,
    )

    batches = layouts.global_batches(_prepare(module, config, "train"), 2, 2, 2)

    _, labels, weights = map(np.concatenate, zip(*batches, strict=True))
    assert (weights == 0).sum() == 2
    assert sorted(labels[weights > 0]) == sorted({*range(16)} - {3, 4})
