"""Files of `tf.train.Example`: `--dataset=tfrecord:FOLDER`.

    FOLDER/train/*.tfrecord*        not compressed
    FOLDER/eval/*.tfrecord*         or test, validation, val, the first of them

Without a folder to evaluate on, every tenth record of each file is held out.
`FOLDER` may be in a bucket (`gs://…`); one that is not absolute starts at
`--data_dir`. The first record shows what is there:

    features    `image/encoded` or `features`, or say `features=KEY`: an
                encoded image (float32 in [0, 1], resized to `size=224x224` with
                `channels=3`), or numbers (float32 or int64; `shape=28x28x1`,
                or else a vector)
    labels      `image/class/label` or `labels`, or say `labels=KEY`: a class
                from 0 to C - 1, for which you say `classes=C`, or numbers
                (float32 `[K]`), which make it a regression
    weights     only if you say `weights=KEY`: what an example counts, one
                float32 of 0 or more

    python train.py --dataset=tfrecord:flowers,classes=5,size=64x64 --model=cnn

At the start each process counts the records. It hops from one to the next,
0.05 s for 100,000 of them; only files in a bucket have to be read through.
"""

import fnmatch
import mmap
import os

import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data import _example
from data import _folder
from errors import RequestError

_PATTERN = "*.tfrecord*"
# Around what a record holds: its length, 8 bytes, and two checksums.
_FRAME_BYTES = 16


def info(config: DataConfig) -> DatasetInfo:
    """Counts the records, looks into the first and describes them.

    Raises:
        RequestError: if the folder or the record is not as above, or for a
            bad option.
    """
    _, chosen = _folder.parse(config, _example.Options)
    layout = _layout(config)
    return DatasetInfo(
        task="classification" if chosen.classes else "regression",
        num_examples=_count_examples(config),
        features=layout.features,
        labels=layout.labels,
        num_classes=chosen.classes,
        has_weights=bool(chosen.weights),
    )


def source(
    config: DataConfig, split: str, shard: tuple[int, int]
) -> tf.data.Dataset:
    """Reads records, string `[]`, in the order of the files' names.

    Raises:
        RequestError: if there are fewer files than `shard` asks for.
    """
    index, num_shards = shard
    parts = _files(config)
    files = parts.get(split, parts["train"])
    if len(files) < num_shards:
        raise RequestError(
            f"--shard_by=files: --dataset={config.dataset} has {len(files)} "
            f"files for {num_shards} workers; use --shard_by=examples."
        )
    own = files[index::num_shards]
    if "eval" in parts:
        return tf.data.TFRecordDataset(own)

    def is_own(place: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        held_out = place % _folder.HELD_OUT == _folder.HELD_OUT - 1
        return held_out == (split == "eval")

    def records(path: tf.Tensor) -> tf.data.Dataset:
        # By their places in a file: damage to one file moves no other's.
        numbered = tf.data.TFRecordDataset(path).enumerate()
        return numbered.filter(is_own).map(lambda _, record: record)

    return tf.data.Dataset.from_tensor_slices(own).flat_map(records)


def preprocess(
    config: DataConfig, split: str, element: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """Reads one record: (features, labels), or (features, labels, weight)."""
    del split
    _, chosen = _folder.parse(config, _example.Options)
    return _example.read(element, _layout(config), chosen)


@_folder.once
def _files(config: DataConfig) -> dict[str, list[str]]:
    """Lists the files of each split; without `eval`, a part is held out."""
    folder, _ = _folder.parse(config, _example.Options)
    files = {}
    for split, part in _folder.parts(folder, config).items():
        # A glob of the whole path would take a `[1]` in it for a pattern.
        names = fnmatch.filter(tf.io.gfile.listdir(part), _PATTERN)
        files[split] = [tf.io.gfile.join(part, name) for name in sorted(names)]
        if not files[split]:
            raise RequestError(
                f"--dataset={config.dataset}: there is no "
                f"{tf.io.gfile.join(part, _PATTERN)}; put files of "
                "tf.train.Example there."
            )
    return files


# Asked for by info and preprocess.
@_folder.once
def _layout(config: DataConfig) -> _example.Layout:
    """Looks into the first record of the first file that has one."""
    _, chosen = _folder.parse(config, _example.Options)
    files = _files(config)["train"]
    for path in files:
        try:
            records = list(tf.data.TFRecordDataset(path).take(1))
            if records:
                return _example.find_layout(records[0].numpy(), chosen)
        except tf.errors.OpError as error:
            raise _unreadable(path, config) from error
        except ValueError as error:
            raise RequestError(
                f"--dataset={config.dataset}: {error} ({path})."
            ) from error
    raise RequestError(
        f"--dataset={config.dataset}: the files with {files[0]} hold no "
        "record; name a folder whose files do."
    )


def _unreadable(path: str, config: DataConfig) -> RequestError:
    return RequestError(
        f"--dataset={config.dataset}: the first record of {path} cannot be "
        "read; is it a TFRecord file, not compressed?"
    )


@_folder.once
def _count_examples(config: DataConfig) -> dict[str, int]:
    counts = {
        split: [_count(path, config) for path in files]
        for split, files in _files(config).items()
    }
    totals = {split: sum(numbers) for split, numbers in counts.items()}
    if "eval" not in totals:
        totals["eval"] = sum(n // _folder.HELD_OUT for n in counts["train"])
        totals["train"] -= totals["eval"]
    if not totals["eval"]:
        raise RequestError(
            f"--dataset={config.dataset}: there are no records to evaluate on; "
            f"put files of them into a folder {_folder.EVAL_FOLDERS[0]}."
        )
    return totals


def _count(path: str, config: DataConfig) -> int:
    """Counts the records of a file, one that is cut off at its end too."""
    if "://" in path:
        # A bucket is read in large blocks, so hopping would save nothing.
        records = tf.data.TFRecordDataset(path)
        try:
            return int(records.reduce(0, lambda count, _: count + 1))
        except tf.errors.OpError as error:
            raise RequestError(
                f"--dataset={config.dataset}: {path} is damaged; put a whole "
                "copy in its place."
            ) from error
    count = place = 0
    size = os.path.getsize(path)
    if not size:
        return 0
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        while place < size:
            length = int.from_bytes(content[place : place + 8], "little")
            place += length + _FRAME_BYTES
            # In a file of another kind any bytes are taken for a length.
            if not count and place > size:
                raise _unreadable(path, config)
            count += 1
    return count
