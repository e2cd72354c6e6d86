"""Flags of what is learned from."""

from absl import flags

from data import DataConfig
from flags import _read
from flags import registry

flags.DEFINE_string(
    "dataset",
    DataConfig.dataset,
    f"One of {', '.join(registry.names('data'))}, or the dotted path of a "
    "module of your own; what follows a colon (tfds:mnist) is its argument.",
)
flags.DEFINE_string(
    "data_dir",
    DataConfig.data_dir,
    "Folder of the data. Empty: the dataset's own default.",
)
flags.DEFINE_boolean(
    "download",
    DataConfig.download,
    "Fetch a dataset of tfds that is not there; without it nothing is fetched.",
)
flags.DEFINE_integer(
    "global_batch_size",
    DataConfig.global_batch_size,
    "Examples per step over all replicas, which must divide it.",
)
flags.DEFINE_string(
    "shard_by",
    DataConfig.shard_by,
    "examples: the order is the same for any number of workers; files: each "
    "worker reads only its own files, for large sets.",
)
flags.DEFINE_integer(
    "skip_bad_examples",
    DataConfig.skip_bad_examples,
    "Unreadable examples that training may meet, each time counted anew, "
    "before it ends; until then they weigh nothing. 0: none.",
)
flags.DEFINE_string(
    "class_weights",
    DataConfig.class_weights,
    "What training examples count by their class: 0:1,3:2.5, where others "
    "count 1, or balanced: as much as there are few. Empty: all the same.",
)
flags.DEFINE_string(
    "augmentation",
    DataConfig.augmentation,
    f"One of {', '.join(registry.names('data.augmentation'))}, or the dotted "
    "path of a module of your own: what changes each training example at "
    "random, always the same for one seed. Empty: nothing.",
)


def data_config() -> DataConfig:
    """Reads this group. Raises `RequestError` for a value not allowed."""
    config = _read.read(DataConfig)
    registry.check("data", config.dataset, "dataset")
    if config.augmentation:
        registry.check("data.augmentation", config.augmentation, "augmentation")
    return config
