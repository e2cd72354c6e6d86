from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data.pipeline import blame
from data.pipeline import order
from tests.data.pipeline import datasets
from tests.data.pipeline import layouts

CONFIG = DataConfig(dataset="mine", global_batch_size=4)
KINDS = pytest.mark.parametrize(
    "kind", ["arrays_preprocess", "example", "source"]
)
ONE = tf.distribute.InputContext()


def _step_of(example: int) -> int:
    """Finds the first step of seed 5 that has one of 16 examples."""
    steps = order.train_indices(16, 4, seed=5, step=0).take(4)
    rows = np.array(list(steps.as_numpy_iterator()))
    return int(np.argwhere(rows == example)[0, 0])


def _first_bad(
    module: Any,
    split: str = "train",
    config: DataConfig = CONFIG,
    context: tf.distribute.InputContext = ONE,
    steps: range = range(4),
) -> str:
    return blame.find(module, config, context, split, seed=5, steps=steps)


@KINDS
@pytest.mark.parametrize("split", ["train", "eval"])
def test_names_the_example_and_the_reason(kind: str, split: str) -> None:
    module = datasets.make(kind, 16, 16, bad=[11])

    found = _first_bad(module, split)

    what = "element 11 of the source" if kind == "source" else "example 11"
    assert found == (
        f"{what} of split {split}: StringToNumberOp could not correctly "
        "convert string: bad"
    )


@KINDS
def test_finds_nothing_where_all_is_well(kind: str) -> None:
    assert _first_bad(datasets.make(kind, 16)) == ""


def test_looks_at_the_rows_of_the_steps_alone() -> None:
    module, step = datasets.make("example", 16, bad=[11]), _step_of(11)

    assert "example 11 " in _first_bad(module, steps=range(step, step + 1))
    others = [range(step), range(step + 1, 4)]
    assert [_first_bad(module, steps=steps) for steps in others] == ["", ""]


def test_looks_even_where_bad_examples_are_skipped() -> None:
    config = DataConfig(
        dataset="mine", global_batch_size=4, skip_bad_examples=3
    )
    module = datasets.make("source", 16, bad=[11])

    assert "element 11 " in _first_bad(module, config=config)


def test_a_worker_looks_at_its_own_rows_of_a_source() -> None:
    module = datasets.make("source", 16, bad=[11])

    found = [
        _first_bad(module, context=context)
        for context in layouts.contexts(2, 2)
    ]

    assert sorted(map(bool, found)) == [False, True]
    assert "element 11 " in "".join(found)


def test_a_worker_looks_at_its_own_files() -> None:
    module = datasets.make("source", 16, bad=[11])
    config = DataConfig(dataset="mine", global_batch_size=4, shard_by="files")

    found = [
        _first_bad(module, config=config, context=context)
        for context in layouts.contexts(2, 2)
    ]

    # The sixth of 1, 3, 5, 7, 9, 11.
    assert found[0] == ""
    assert found[1].startswith(
        "element 5 of the source of split train in the files of worker 1: "
    )


@pytest.mark.parametrize("by_files", [False, True])
def test_names_a_damaged_record(tmp_path: Path, by_files: bool) -> None:
    path = tmp_path / "numbers"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(16):
            writer.write(str(number).zfill(4).encode())
    content = bytearray(path.read_bytes())
    content[20 * 6 + 13] ^= 1
    path.write_bytes(content)
    module = datasets.make("source", 16)
    module.source = lambda *_: tf.data.TFRecordDataset(str(path))
    config = DataConfig(
        dataset="mine",
        global_batch_size=4,
        shard_by="files" if by_files else "examples",
    )
    context = tf.distribute.InputContext(2, 0, 2) if by_files else ONE

    found = _first_bad(module, config=config, context=context)

    whose = " in the files of worker 0" if by_files else ""
    assert found == (
        f"element 6 of the source of split train{whose}: corrupted record at "
        "132; the rest of its file is lost with it"
    )


def test_names_where_a_source_ends_too_early() -> None:
    module = datasets.make("source", 16)
    module.source = datasets.make("source", 13).source

    found = _first_bad(module)

    assert found.startswith("element 13 of the source of split train: Input")
    assert "16 elements" in found


def test_names_the_exception_of_python_code() -> None:
    def generate() -> Any:
        yield from ("0", "1", "2")
        raise OSError("the disk\nis gone")

    module = datasets.make("source", 16)
    module.source = lambda *_: tf.data.Dataset.from_generator(
        generate, output_signature=tf.TensorSpec([], tf.string)
    )

    assert _first_bad(module) == (
        "element 3 of the source of split train: OSError: the disk"
    )


def test_names_an_image_that_is_none() -> None:
    module = datasets.make("source", 16)
    module.preprocess = lambda config, split, element: (
        tf.cast(tf.io.decode_png(element)[0, 0, :2], tf.float32),
        tf.constant(0, tf.int64),
    )

    assert "element 0 of the source of split eval: Unknown image file" in (
        _first_bad(module, "eval")
    )


def test_names_an_example_of_another_shape() -> None:
    module = datasets.make("example", 16)
    module.example = lambda config, split, index: (
        tf.repeat(1.0, tf.where(index == 11, 3, 2)),
        index,
    )

    assert "example 11 of split train: Shape of tensor" in _first_bad(module)


def test_a_reason_without_words_is_the_name_of_the_error() -> None:
    error = tf.errors.DataLossError(None, None, "\n [[{{node Cast}}]]\n")

    assert blame.reason(error) == "DataLossError"
