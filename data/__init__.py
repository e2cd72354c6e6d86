"""What is learned from: config + split → `tf.data`.

A public module here is a dataset; its name is the value of `--dataset`. What
follows a colon (`tfds:mnist`) is the dataset's own argument and reaches it as
`config.argument`. The module provides

    info(config: DataConfig) -> DatasetInfo

and exactly one of

    arrays(config, split) -> (features, labels)
        NumPy arrays, all examples along the first axis: fits in memory.
    example(config, split, index) -> (features, labels)
        TensorFlow code that computes one example from its index (int64 `[]`).
    source(config, split, shard) -> tf.data.Dataset
        Single, undecoded examples, in an order that never changes; without
        a `preprocess`, pairs `(features, labels)`.
        `shard=(i, n)` reads only the i-th n-th of the *files*; `(0, 1)` reads
        all. Raises `errors.RequestError` if there are fewer files than n.

where `split` is `"train"` or `"eval"`; and optionally

    preprocess(config, split, element) -> (features, labels)
        TensorFlow code for one example: decode, scale, augment. Runs after
        sharding. `element` is what the above gave: `(features, labels)`, or
        whatever a `source` yields.

`arrays` and `example` resume at any step in constant time; a `source` reads
and drops what came before in the current epoch. Every worker loads all
`arrays`, but computes, or decodes, only its own rows. Sharding, order,
batching, padding and prefetching are `data/pipeline/`'s, never the dataset's.
Nothing here knows about models or names a strategy.
"""

import dataclasses
import math
from typing import Any

from errors import RequestError


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What `--dataset` and its companions say."""

    dataset: str = "digits"
    """Name of a module in `data` or dotted path to a module of your own,
    optionally followed by `:` and an argument for it."""
    data_dir: str = ""
    """Folder of the data; empty: the dataset's own default."""
    global_batch_size: int = 64
    """Examples per step over all replicas. The replicas must divide it."""
    shard_by: str = "examples"
    """`examples`: the order does not depend on the number of workers;
    `files`: each worker reads only its own files, for large sets."""
    skip_bad_examples: int = 0
    """How many unreadable examples training may meet, counted from the start
    of the process and each time anew, before it ends. Until then such a row
    has weight 0. 0: it ends at the first."""

    def __post_init__(self) -> None:
        if self.global_batch_size < 1:
            raise RequestError(
                f"--global_batch_size={self.global_batch_size}: must be 1 or "
                "more."
            )
        if self.shard_by not in ("examples", "files"):
            raise RequestError(
                f"--shard_by={self.shard_by}: must be examples or files."
            )
        if self.skip_bad_examples < 0:
            raise RequestError(
                f"--skip_bad_examples={self.skip_bad_examples}: must be 0 or "
                "more."
            )

    @property
    def argument(self) -> str:
        """What follows the colon of `dataset`; empty if there is none."""
        return self.dataset.partition(":")[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What a dataset says of itself before anything is read."""

    task: str
    """`classification` (labels are integers) or `regression`."""
    num_examples: dict[str, int]
    """Examples in split `train` and in split `eval`; each at least 1."""
    features: Any
    """`tf.TensorSpec` of one example's features, or a dict of them. Static
    shapes, no batch dimension."""
    labels: Any
    """`tf.TensorSpec` of one example's labels."""
    num_classes: int = 0
    """Classes of a classification; 0 for a regression."""

    @property
    def num_outputs(self) -> int:
        """Classes, or target values of a regression."""
        return self.num_classes or math.prod(self.labels.shape)

    def __post_init__(self) -> None:
        if self.task not in ("classification", "regression"):
            raise RequestError(
                f"info says task={self.task!r}: must be classification or "
                "regression."
            )
        for split in ("train", "eval"):
            if self.num_examples.get(split, 0) < 1:
                raise RequestError(
                    f"info says num_examples={self.num_examples}: {split} "
                    "must have 1 or more."
                )
