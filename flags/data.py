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


def data_config() -> DataConfig:
    """Reads this group. Raises `RequestError` for a value not allowed."""
    config = _read.read(DataConfig)
    registry.check("data", config.dataset, "dataset")
    return config
