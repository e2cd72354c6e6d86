"""Any dataset of tensorflow-datasets: `--dataset=tfds:mnist`.

What follows the colon is a name as `tfds.builder` takes it, with a config or
a version where needed (`tfds:cifar10_corrupted/fog_1:1.0.0`). A folder that
was prepared from a builder of your own needs no code: give its parent as
`--data_dir`. Licence, size and manual steps are each dataset's own, see
https://www.tensorflow.org/datasets/catalog.

Features are the first of the dataset's supervised keys; images become float32
in [0, 1], everything else stays as it is. Labels are the second: class labels
(int32) or numbers (float32). Training reads `train`; evaluation `test`, or
else `validation`, or else the last tenth of `train`, which training then
leaves out.

With `--download` the first process that needs a dataset fetches and prepares
it, and the others on the same file system wait. tensorflow-datasets compares
what it fetches with the checksums that it has of it.

    python train.py --dataset=tfds:mnist --download
"""

import contextlib
import difflib
import fcntl
import functools
import pathlib
from collections.abc import Iterator

import tensorflow as tf
import tensorflow_datasets as tfds

from data import DataConfig
from data import DatasetInfo
from errors import RequestError
from errors import RunError


def info(config: DataConfig) -> DatasetInfo:
    """Prepares the dataset if necessary, and asked for, and describes it.

    Raises:
        RequestError: if the name is unknown, the dataset is not there and is
            not to be downloaded, or needs something else of the user, or does
            not pair tensors of known shape with classes or numbers.
        RunError: if it cannot be fetched.
    """
    builder = _prepared_builder(config)
    features, labels = _supervised(builder, config)
    num_classes = _num_classes(labels)
    return DatasetInfo(
        task="classification" if num_classes else "regression",
        num_examples={
            split: builder.info.splits[_tfds_split(builder, split)].num_examples
            for split in ("train", "eval")
        },
        features=tf.TensorSpec(
            features.shape,
            tf.float32 if _is_image(features) else features.tf_dtype,
        ),
        labels=(
            tf.TensorSpec([], tf.int32)
            if num_classes
            else tf.TensorSpec(labels.shape or [1], tf.float32)
        ),
        num_classes=num_classes,
    )


def source(
    config: DataConfig, split: str, shard: tuple[int, int]
) -> tf.data.Dataset:
    """Reads pairs (features, labels) in the order of the files.

    Images are still encoded. Sets below 250 MiB are kept in memory once read,
    still encoded: tensorflow-datasets does that by itself.

    Raises:
        RequestError: if there are fewer files than `shard` asks for.
    """
    builder = _prepared_builder(config)
    name = _tfds_split(builder, split)
    index, num_shards = shard
    num_files = len(builder.info.splits[name].file_instructions)
    if num_files < num_shards:
        raise RequestError(
            f"--shard_by=files: --dataset={config.dataset} has {num_files} "
            f"files for {num_shards} workers; use --shard_by=examples."
        )
    features_key, _ = builder.info.supervised_keys
    features, _ = _supervised(builder, config)
    skipped = {features_key: tfds.decode.SkipDecoding()}
    return builder.as_dataset(
        split=name,
        as_supervised=True,
        shuffle_files=False,
        decoders=skipped if _is_image(features) else None,
        read_config=tfds.ReadConfig(
            input_context=tf.distribute.InputContext(num_shards, index)
        ),
    )


def preprocess(
    config: DataConfig, split: str, element: tuple[tf.Tensor, tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes one example: images to [0, 1], labels to int32 or float32."""
    del split
    builder = _prepared_builder(config)
    features, labels = _supervised(builder, config)
    image, label = element
    if _is_image(features):
        # Scales integers by the largest value of their type.
        image = tf.image.convert_image_dtype(
            features.decode_example(image), tf.float32
        )
    if _num_classes(labels):
        return image, tf.cast(label, tf.int32)
    return image, tf.reshape(tf.cast(label, tf.float32), labels.shape or [1])


# The dataset is asked for by info, source and preprocess, in every process.
@functools.cache
def _prepared_builder(config: DataConfig) -> tfds.core.DatasetBuilder:
    """Finds a builder, prepares it once, and returns it ready to read."""
    name, data_dir = config.argument, config.data_dir
    if name.startswith("huggingface:") and not config.download:
        # It asks a server even for what is prepared.
        raise RequestError(f"--dataset=tfds:{name}: only with --download.")
    with _explained(config.dataset):
        builder = _find_builder(name, data_dir)
    if builder.is_prepared():
        return builder
    if "://" in str(builder.data_path):
        raise RequestError(
            f"--data_dir={data_dir}: holds no prepared {name}, and a remote "
            "folder cannot be locked; prepare it first with `tfds build`."
        )
    if not config.download:
        raise RequestError(
            f"--dataset={config.dataset}: is not in {builder.data_path}; add "
            "--download to fetch and prepare it there, or name the folder that "
            "has it as --data_dir."
        )
    with _explained(config.dataset), _locked(pathlib.Path(builder.data_path)):
        # Another process may have prepared it while this one waited.
        if not builder.is_prepared():
            builder.download_and_prepare()
    # A builder reads what is on disk only when it is made.
    return _find_builder(name, data_dir)


def _find_builder(name: str, data_dir: str) -> tfds.core.DatasetBuilder:
    try:
        return tfds.builder(name, data_dir=data_dir or None)
    except tfds.core.DatasetNotFoundError as error:
        known = tfds.list_builders(with_community_datasets=False)
        close = difflib.get_close_matches(name.split("/")[0], known)
        raise RequestError(
            f"--dataset=tfds:{name}: neither tensorflow-datasets nor "
            f"--data_dir={data_dir} has it; similar names: "
            f"{', '.join(close) or 'none'}."
        ) from error
    except (ValueError, AssertionError) as error:
        # An unknown config or version; the message lists those that exist.
        raise RequestError(f"--dataset=tfds:{name}: {_line(error)}") from error


@contextlib.contextmanager
def _explained(dataset: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise RequestError(
            f"--dataset={dataset}: {_line(error)}; install that package."
        ) from error
    except AssertionError as error:
        # The message says what to fetch by hand, and where from.
        if "Manual directory" not in str(error):
            raise
        raise RequestError(f"--dataset={dataset}: {_line(error)}") from error
    except (OSError, tf.errors.OpError, tfds.download.DownloadError) as error:
        raise RunError(
            f"--dataset={dataset}: not fetched: {_line(error)}; try again."
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Waits for the lock of a dataset's folder; it ends with the process."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = open(folder.with_name(f".{folder.name}.lock"), "w")
    except OSError as error:
        raise RequestError(
            f"--data_dir: {folder.parent} cannot be written: {error.strerror}."
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _tfds_split(builder: tfds.core.DatasetBuilder, split: str) -> str:
    """Names the part of the dataset that is our split."""
    names = builder.info.splits
    held_out = [name for name in ("test", "validation") if name in names]
    if split == "train":
        return "train" if held_out else "train[:90%]"
    return held_out[0] if held_out else "train[90%:]"


def _supervised(
    builder: tfds.core.DatasetBuilder, config: DataConfig
) -> list[tfds.features.FeatureConnector]:
    """Returns what to learn from and what to learn; refuses odd ones."""
    keys = builder.info.supervised_keys or ()
    if "train" not in builder.info.splits:
        reason = "has no split train"
    elif len(keys) != 2 or not all(isinstance(key, str) for key in keys):
        reason = "has no pair of supervised keys"
    else:
        pair = [builder.info.features[key] for key in keys]
        if all(map(_is_numeric, pair)):
            return pair
        reason = f"has no numbers of known shape in {' and '.join(keys)}"
    raise RequestError(
        f"--dataset={config.dataset} {reason}; write a dataset module with a "
        "source and a preprocess of your own."
    )


def _is_numeric(feature: tfds.features.FeatureConnector) -> bool:
    tensor = feature.get_tensor_info()
    return (
        isinstance(tensor, tfds.features.TensorInfo)
        and None not in tensor.shape
        and (tensor.tf_dtype.is_floating or tensor.tf_dtype.is_integer)
    )


def _is_image(feature: tfds.features.FeatureConnector) -> bool:
    return isinstance(feature, tfds.features.Image)


def _num_classes(feature: tfds.features.FeatureConnector) -> int:
    is_class = isinstance(feature, tfds.features.ClassLabel)
    return feature.num_classes if is_class else 0
