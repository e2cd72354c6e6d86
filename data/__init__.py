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
        TensorFlow code for one example: decode, scale. Runs after sharding.
        `element` is what the above gave: `(features, labels)`, or whatever a
        `source` yields.
    labels(config, split) -> NumPy array [N] of classes
        Known without reading an example, for `--class_weights=balanced`;
        plain `arrays` need none.
    describe(config, split, index) -> str
        What an `example` is called where it cannot be read, such as its file.

If info says `has_weights`, every pair above is `(features, labels, weight)`,
with a float32 `[]` of 0 or more: what the example counts. With weights w and
losses l a training step minimizes Σ w·l / G, as Keras does with
`sample_weight`, over the `G` rows of the global batch; an evaluation reports
Σ w·l / Σ w, and counts an example of weight 0 among its `examples`. A label of
weight 0 may be NaN.

`--augmentation` names a module in `data/augmentation`, or one of your own:

    augment(features, labels, seed) -> (features, labels)
        TensorFlow code for one training example that keeps shapes and dtypes.
        All that is random in it must come from `seed`, int32 `[2]`, by
        `tf.random.stateless_…`: it is a function of `--seed` and of the
        example's place in the order, so a run that resumes, or has other
        replicas, sees the same numbers.

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
    download: bool = False
    """Whether a dataset that is not there may be fetched."""
    global_batch_size: int = 64
    """Examples per step over all replicas. The replicas must divide it."""
    shard_by: str = "examples"
    """`examples`: the order does not depend on the number of workers;
    `files`: each worker reads only its own files, for large sets."""
    skip_bad_examples: int = 0
    """How many unreadable examples training may meet, counted from the start
    of the process and each time anew, before it ends. Until then such a row
    has weight 0. 0: it ends at the first."""
    class_weights: str = ""
    """What a training example counts by its class: `0:1,3:2.5` (others: 1),
    or `balanced`, n / (k·n_c) for the n_c of n training examples that are of
    class c, one of k that occur. Multiplies weights of the dataset's own."""
    augmentation: str = ""
    """Name of a module in `data/augmentation` or dotted path to a module of
    your own, which changes each training example at random; empty: none."""

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
        if ":" in self.augmentation:
            raise RequestError(
                f"--augmentation={self.augmentation}: takes no argument; write "
                "a module of your own for other values."
            )
        self.read_class_weights()

    @property
    def argument(self) -> str:
        """What follows the colon of `dataset`; empty if there is none."""
        return self.dataset.partition(":")[2]

    def read_class_weights(self) -> dict[int, float]:
        """Reads class → weight; empty where `class_weights` has no numbers.

        Raises:
            RequestError: for anything that is not allowed.
        """
        if self.class_weights in ("", "balanced"):
            return {}
        words = [word.split(":") for word in self.class_weights.split(",")]
        try:
            pairs = [(int(c), float(weight)) for c, weight in words]
        except ValueError:
            pairs = []
        fits = all(c >= 0 and 0 <= w < math.inf for c, w in pairs)
        if not fits or not 0 < len(pairs) == len(dict(pairs)):
            raise RequestError(
                f"--class_weights={self.class_weights}: must be balanced, or "
                "class:weight pairs such as 0:1,3:2.5, each class once and no "
                "weight below 0."
            )
        return dict(pairs)


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
    class_names: tuple[str, ...] = ()
    """Their names in the order of their numbers; empty: not known."""
    has_weights: bool = False
    """Whether each example is (features, labels, weight)."""

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
        if self.task == "classification" and self.num_classes < 1:
            raise RequestError(
                f"info says num_classes={self.num_classes}: a classification "
                "must say how many there are."
            )
        for split in ("train", "eval"):
            if self.num_examples.get(split, 0) < 1:
                raise RequestError(
                    f"info says num_examples={self.num_examples}: {split} "
                    "must have 1 or more."
                )
