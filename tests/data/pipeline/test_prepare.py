import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data.pipeline import order
from data.pipeline import prepare
from data.pipeline import stream
from errors import RequestError
from tests.data.pipeline import datasets
from tests.data.pipeline import layouts

KINDS = pytest.mark.parametrize("kind", datasets.KINDS)


def _config(size: int, **kwargs: Any) -> DataConfig:
    return DataConfig(dataset="mine", global_batch_size=size, **kwargs)


def _train(
    module: Any, config: DataConfig, seed: int = 5, step: int = 0
) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    return lambda context: prepare.train_dataset(
        module, config, context, seed=seed, step=step
    )


@KINDS
@layouts.LAYOUTS
def test_global_batches_do_not_depend_on_the_layout(
    kind: str, num_workers: int, num_replicas: int
) -> None:
    make = _train(datasets.make(kind, 18), _config(8))

    batches = layouts.global_batches(make, num_workers, num_replicas, 5)

    expected = make(tf.distribute.InputContext()).take(5).as_numpy_iterator()
    for batch, one_device in zip(batches, expected, strict=True):
        for received, right in zip(batch, one_device, strict=True):
            np.testing.assert_array_equal(received, right)


@pytest.mark.parametrize("kind", ["arrays", "arrays_preprocess", "example"])
def test_rows_follow_the_order(kind: str) -> None:
    make = _train(datasets.make(kind, 18), _config(8), seed=5, step=2)

    batches = layouts.global_batches(make, 1, 1, 12)

    rows = order.train_indices(18, 8, seed=5, step=2).take(12)
    for (features, labels, weights), index in zip(
        batches, rows.as_numpy_iterator(), strict=True
    ):
        np.testing.assert_array_equal(features, np.stack([index, index], 1))
        np.testing.assert_array_equal(abs(labels), index)
        np.testing.assert_array_equal(weights, np.ones(8))


@KINDS
def test_every_epoch_holds_every_example_once(kind: str) -> None:
    make = _train(datasets.make(kind, 6), _config(4))

    batches = layouts.global_batches(make, 1, 1, 6)

    chain = np.concatenate([abs(labels) for _, labels, _ in batches])
    epochs = chain.reshape(4, 6)
    np.testing.assert_array_equal(np.sort(epochs), np.tile(range(6), (4, 1)))
    assert len({tuple(epoch) for epoch in epochs}) > 1


@KINDS
def test_starting_at_a_step_equals_skipping_to_it(kind: str) -> None:
    module, config = datasets.make(kind, 18), _config(8)
    whole = layouts.global_batches(_train(module, config), 1, 2, 14)

    for step in (3, 10):
        later = layouts.global_batches(
            _train(module, config, step=step), 1, 2, 4
        )

        for received, right in zip(later, whole[step:], strict=False):
            np.testing.assert_array_equal(received[1], right[1])


def test_order_of_a_source_depends_on_the_seed_alone() -> None:
    module, config = datasets.make("source", 40), _config(40)

    def first_labels(seed: int) -> list[int]:
        batches = layouts.global_batches(_train(module, config, seed), 1, 1, 1)
        return list(batches[0][1])

    tf.random.set_seed(1)
    once = first_labels(seed=3)
    tf.random.set_seed(2)

    assert first_labels(seed=3) == once
    assert first_labels(seed=4) != once


def test_source_larger_than_the_buffer_still_gives_each_example_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "SHUFFLE_BUFFER_EXAMPLES", 4)
    make = _train(datasets.make("source", 32), _config(16))

    batches = layouts.global_batches(make, 2, 2, 2)

    labels = np.concatenate([labels for _, labels, _ in batches])
    np.testing.assert_array_equal(np.sort(labels), range(32))
    # The k-th to come cannot be from beyond the buffer.
    assert (labels < np.arange(32) + 4).all()


@KINDS
def test_shapes_are_static(kind: str) -> None:
    module, config = datasets.make(kind, 18, 9), _config(8)
    context = tf.distribute.InputContext(2, 1, 4)
    expected = (
        tf.TensorSpec([2, 2], tf.float32),
        tf.TensorSpec([2], tf.int64),
        tf.TensorSpec([2], tf.float32),
    )

    train = _train(module, config)(context)
    evaluation = prepare.eval_dataset(module, config, context)

    assert train.element_spec == expected
    assert train.cardinality() == tf.data.INFINITE_CARDINALITY
    assert evaluation.element_spec == expected


def test_element_spec_reads_nothing() -> None:
    module = datasets.make("arrays", 18)
    del module.arrays

    assert prepare.element_spec(module, _config(8)) == (
        tf.TensorSpec([None, 2], tf.float32),
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([None], tf.float32),
    )


@pytest.mark.parametrize(
    ("kind", "global_batch_size", "num_workers", "num_replicas"),
    [
        ("arrays", 1, 1, 1),
        ("arrays", 4, 1, 4),
        ("arrays", 8, 2, 2),
        ("example", 6, 1, 2),
        ("source", 5, 1, 1),
        ("source", 8, 2, 2),
    ],
)
def test_evaluation_counts_every_example_once(
    kind: str, global_batch_size: int, num_workers: int, num_replicas: int
) -> None:
    config = _config(global_batch_size)
    for num_examples in range(1, 18):
        module = datasets.make(kind, 1, num_examples)
        num_steps = prepare.num_eval_steps(module, config)

        batches = layouts.global_batches(
            functools.partial(prepare.eval_dataset, module, config),
            num_workers,
            num_replicas,
            num_steps,
        )

        assert num_steps == -(-num_examples // global_batch_size)
        _, labels, weights = map(np.concatenate, zip(*batches, strict=True))
        np.testing.assert_array_equal(labels[weights == 1], range(num_examples))
        assert weights.sum() == num_examples


def test_evaluation_ends_after_its_steps() -> None:
    for kind in datasets.KINDS:
        dataset = prepare.eval_dataset(
            datasets.make(kind, 1, 9),
            _config(4),
            tf.distribute.InputContext(2, 0, 4),
        )

        assert len(list(dataset)) == 3 * 2


@pytest.mark.parametrize("kind", ["arrays", "example", "source"])
@pytest.mark.parametrize("num_replicas", [2, 4])
def test_experimental_distribute_dataset_gives_the_same_global_batches(
    kind: str,
    num_replicas: int,
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    make = _train(datasets.make(kind, 18), _config(8))
    strategy = strategy_of(num_replicas)
    one_pipeline = make(tf.distribute.InputContext())

    iterator = iter(strategy.experimental_distribute_dataset(one_pipeline))

    ours = layouts.global_batches(make, 1, num_replicas, 5)
    for _, labels, _ in ours:
        parts = strategy.experimental_local_results(next(iterator)[1])
        # TensorFlow gives every replica a run of rows instead of every R-th.
        np.testing.assert_array_equal(np.concatenate(parts), labels)


@pytest.mark.parametrize("kind", ["arrays", "arrays_preprocess"])
def test_arrays_stay_out_of_the_graph(kind: str) -> None:
    module = datasets.make(kind, 10_000)
    datasets_left = [_train(module, _config(8))(tf.distribute.InputContext())]
    sizes = []

    while datasets_left:
        dataset = datasets_left.pop()
        datasets_left += dataset._inputs()
        for wrapper in dataset._functions():
            sizes.append(wrapper.function.graph.as_graph_def().ByteSize())

    # The labels alone would take 80 kB.
    assert len(sizes) > 2
    assert max(sizes) < 20_000


def test_large_examples_are_looked_up_step_by_step() -> None:
    module = datasets.make("arrays", 3)
    zeros = np.zeros([3, 1024, 1024], np.float32)
    module.arrays = lambda config, split: (zeros, np.arange(3))
    module.info = lambda config: DatasetInfo(
        task="regression",
        num_examples={"train": 3, "eval": 3},
        features=tf.TensorSpec([1024, 1024], tf.float32),
        labels=tf.TensorSpec([], tf.int64),
    )

    batches = layouts.global_batches(_train(module, _config(4)), 1, 2, 3)

    labels = np.concatenate([labels for _, labels, _ in batches])
    np.testing.assert_array_equal(
        np.sort(labels.reshape(4, 3)), np.tile(range(3), (4, 1))
    )


def test_unknown_shapes_of_a_decoder_become_static() -> None:
    module = datasets.make("source", 6)
    decode = module.preprocess

    def forget(*args: Any) -> Any:
        features, label = decode(*args)
        return tf.py_function(lambda x: x, [features], tf.float32), label

    module.preprocess = forget

    dataset = _train(module, _config(4))(tf.distribute.InputContext())

    assert dataset.element_spec[0] == tf.TensorSpec([4, 2], tf.float32)
    assert next(iter(dataset))[0].shape == (4, 2)


def _numbers_module(folder: Any) -> types.SimpleNamespace:
    """A user's module over one TFRecord file of the numbers 0 to 15."""
    path = str(folder / "numbers.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(16):
            writer.write(str(number).encode())

    def source(config: DataConfig, split: str, shard: tuple) -> tf.data.Dataset:
        files = tf.data.Dataset.from_tensor_slices([path])
        return tf.data.TFRecordDataset(files.shard(shard[1], shard[0]))

    module = datasets.make("source", 16, 16)
    module.source = source
    return module


@pytest.mark.parametrize("split", ["train", "eval"])
def test_one_file_serves_two_workers(tmp_path: Any, split: str) -> None:
    module, config = _numbers_module(tmp_path), _config(8)
    seen = []

    for context in layouts.contexts(2, 2):
        dataset = (
            _train(module, config)(context)
            if split == "train"
            else prepare.eval_dataset(module, config, context)
        )
        seen.append([int(x) for _, y, _ in dataset.take(2) for x in y])

    assert [len(numbers) for numbers in seen] == [8, 8]
    assert set(seen[0]) | set(seen[1]) == set(range(16))
    assert sum(map(sum, seen)) == 120


def test_only_own_rows_are_decoded() -> None:
    module = datasets.make("source", 1, 16)
    decoded = []

    def decode(config: DataConfig, split: str, element: tf.Tensor) -> tuple:
        number = tf.numpy_function(
            lambda text: decoded.append(int(text)) or np.int64(text),
            [element],
            tf.int64,
        )
        number = tf.ensure_shape(number, [])
        return tf.fill([2], tf.cast(number, tf.float32)), number

    module.preprocess = decode
    context = tf.distribute.InputContext(4, 1, 4)

    (batch,) = prepare.eval_dataset(module, _config(16), context)

    np.testing.assert_array_equal(batch[1], [1, 5, 9, 13])
    assert sorted(decoded) == [1, 5, 9, 13]


def test_files_feed_their_own_worker() -> None:
    module = datasets.make("source", 12)
    config = _config(4, shard_by="files")

    for worker, context in enumerate(layouts.contexts(2, 4)):
        batches = list(_train(module, config)(context).take(12))
        labels = np.concatenate([labels for _, labels, _ in batches])

        assert batches[0][1].shape == (1,)
        np.testing.assert_array_equal(
            np.sort(labels.reshape(2, 6)), np.tile(range(worker, 12, 2), (2, 1))
        )


@pytest.mark.parametrize("says_how_many", [True, False])
def test_files_resume_at_a_step(says_how_many: bool) -> None:
    module = datasets.make("source", 14)
    if not says_how_many:
        known = module.source
        module.source = lambda *args: known(*args).filter(lambda _: True)
    config = _config(4, shard_by="files")

    later = layouts.global_batches(_train(module, config, step=9), 2, 4, 4)

    whole = layouts.global_batches(_train(module, config), 2, 4, 13)
    for received, right in zip(later, whole[9:], strict=True):
        np.testing.assert_array_equal(received[1], right[1])


def test_files_of_one_worker_are_all_files() -> None:
    module = datasets.make("source", 12)

    by_files, by_examples = (
        layouts.global_batches(_train(module, _config(4, shard_by=by)), 1, 2, 6)
        for by in ("files", "examples")
    )

    np.testing.assert_array_equal(
        [labels for _, labels, _ in by_files],
        [labels for _, labels, _ in by_examples],
    )


def test_evaluation_goes_by_example_even_with_files() -> None:
    module = datasets.make("source", 1, 7)
    config = _config(4, shard_by="files")

    batches = layouts.global_batches(
        lambda context: prepare.eval_dataset(module, config, context), 2, 2, 2
    )

    _, labels, weights = map(np.concatenate, zip(*batches, strict=True))
    np.testing.assert_array_equal(labels[weights == 1], range(7))


def test_rejects_a_worker_without_examples() -> None:
    module = datasets.make("source", 1)
    config = _config(4, shard_by="files")

    with pytest.raises(RequestError, match=r"worker 1 of 2.*no example"):
        _train(module, config)(layouts.contexts(2, 2)[1])


@pytest.mark.parametrize("kind", ["arrays", "example"])
def test_rejects_files_where_there_are_none(kind: str) -> None:
    config = _config(4, shard_by="files")

    with pytest.raises(RequestError, match=r"--shard_by=files.*no files"):
        _train(datasets.make(kind, 8), config)(tf.distribute.InputContext())


@pytest.mark.parametrize("wrong", [7, 9], ids=["too_few", "too_many"])
def test_rejects_a_source_of_another_length(wrong: int) -> None:
    module = datasets.make("source", 8)
    module.source = datasets.make("source", wrong).source

    dataset = _train(module, _config(4))(tf.distribute.InputContext())

    with pytest.raises(tf.errors.FailedPreconditionError, match="8 elements"):
        list(dataset.take(4))
