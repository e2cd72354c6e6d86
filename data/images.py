"""A folder of images, one sub-folder for each class: `--dataset=images:FOLDER`.

    FOLDER/train/cat/1.jpg          jpeg, png, bmp, or the first frame of a gif
    FOLDER/train/dog/any name.png
    FOLDER/eval/cat/…               or test, validation, val, the first of them

Without a folder to evaluate on, every tenth image of `train`, by class and
name, is held out. Names that start with a dot are passed over. Classes are
numbered in the order of their names. `FOLDER` may be in a bucket (`gs://…`);
one that is not absolute starts at `--data_dir`.
The folder is listed once at the start. An image is read when it is needed,
anew in each epoch: 3 ms of a core for a jpeg of 500×375 at 224×224, of which
resizing takes more than half.

Features: `[height, width, channels]`, float32 in [0, 1]; images of another
size are resized without keeping the ratio of their sides, and not turned by
what a camera noted. Labels: the class, int32.

    python train.py --dataset=images:pets,size=64x64 --model=cnn

After the folder: `size=224x224`, `channels=3` (1: grey). A bmp must have 24
bits.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data import DataConfig
from data import DatasetInfo
from data import _folder
from data import _image
from errors import RequestError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What follows the folder."""

    size: tuple[int, ...] = (224, 224)
    """Height and width to which all images are resized."""
    channels: int = 3
    """3 for colour, 1 for grey."""

    def __post_init__(self) -> None:
        _image.check(self.size, self.channels)


class _Listing(NamedTuple):
    classes: tuple[str, ...]
    # Split → files, and the class of each.
    paths: dict[str, list[str]]
    labels: dict[str, np.ndarray]


def info(config: DataConfig) -> DatasetInfo:
    """Lists the folder and describes what is there.

    Raises:
        RequestError: if it is not laid out as above, or for a bad option.
    """
    _, chosen = _folder.parse(config, Options)
    listing = _list(config)
    return DatasetInfo(
        task="classification",
        num_examples={
            split: len(paths) for split, paths in listing.paths.items()
        },
        features=tf.TensorSpec([*chosen.size, chosen.channels], tf.float32),
        labels=tf.TensorSpec([], tf.int32),
        num_classes=len(listing.classes),
        class_names=listing.classes,
    )


def example(
    config: DataConfig, split: str, index: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads one image `[height, width, channels]` and its class, int32."""
    _, chosen = _folder.parse(config, Options)
    paths, classes = _tensors(config, split)
    content = tf.io.read_file(tf.gather(paths, index))
    image = _image.decode(content, chosen.size, chosen.channels)
    return image, tf.gather(classes, index)


def labels(config: DataConfig, split: str) -> np.ndarray:
    """Returns the class of each image of a split, int32 `[N]`."""
    return _list(config).labels[split]


def describe(config: DataConfig, split: str, index: int) -> str:
    """Returns the path of an image."""
    return _list(config).paths[split][index]


# A graph refers to tensors made outside of it; it would hold those of its own.
@_folder.once
def _tensors(config: DataConfig, split: str) -> tuple[tf.Tensor, tf.Tensor]:
    listing = _list(config)
    with tf.init_scope(), tf.device("cpu:0"):
        paths = tf.constant(listing.paths[split])
        return paths, tf.constant(listing.labels[split])


# Asked for by info, example and labels.
@_folder.once
def _list(config: DataConfig) -> _Listing:
    folder, _ = _folder.parse(config, Options)
    parts = _folder.parts(folder, config)
    classes = _classes(parts["train"])
    if len(classes) < 2:
        raise RequestError(
            f"--dataset={config.dataset}: {parts['train']} has "
            f"{len(classes)} sub-folders; it needs one for each of two or more "
            "classes, with images in it."
        )
    paths, numbers = {}, {}
    for split, part in parts.items():
        paths[split], numbers[split] = _files(part, classes, config)
    if "eval" not in parts:
        rows = np.arange(len(paths["train"])) % _folder.HELD_OUT
        held_out = rows == _folder.HELD_OUT - 1
        for split, own in (("eval", held_out), ("train", ~held_out)):
            paths[split] = [paths["train"][i] for i in np.flatnonzero(own)]
            numbers[split] = numbers["train"][own]
    if not paths["eval"]:
        found, place = "there are too few", tf.io.gfile.join(folder, "eval")
        if "eval" in parts:
            found, place = f"{parts['eval']} has no", parts["eval"]
        raise RequestError(
            f"--dataset={config.dataset}: {found} images to evaluate on; put "
            f"some into {place}, in a sub-folder for each class."
        )
    return _Listing(tuple(classes), paths, numbers)


def _files(
    part: str, classes: list[str], config: DataConfig
) -> tuple[list[str], np.ndarray]:
    """Lists the images of one part, by class and name, and their classes."""
    present = _classes(part)
    strangers = set(present) - set(classes)
    if strangers:
        raise RequestError(
            f"--dataset={config.dataset}: {part} has classes that are not to "
            f"be learned: {', '.join(sorted(strangers))}; the folder train has "
            f"{', '.join(classes)}."
        )
    paths: list[str] = []
    numbers: list[int] = []
    for number, name in enumerate(classes):
        if name not in present:
            continue
        folder = tf.io.gfile.join(part, name)
        names = _names(folder)
        for other in names:
            if not other.lower().endswith(_image.SUFFIXES):
                raise RequestError(
                    f"--dataset={config.dataset}: "
                    f"{tf.io.gfile.join(folder, other)} is not called as an "
                    f"image is ({', '.join(_image.SUFFIXES)}); convert it or "
                    "put it elsewhere."
                )
        paths += [tf.io.gfile.join(folder, image) for image in names]
        numbers += [number] * len(names)
    return paths, np.array(numbers, np.int32)


def _classes(part: str) -> list[str]:
    # Sorted without the slash of a bucket, which comes after a hyphen.
    return sorted(
        name.rstrip("/")
        for name in _names(part)
        # In a bucket the slash says it, and asking would take long.
        if name.endswith("/") or tf.io.gfile.isdir(tf.io.gfile.join(part, name))
    )


def _names(folder: str) -> list[str]:
    """Lists what is in a folder, in the order of names."""
    names = tf.io.gfile.listdir(folder)
    return sorted(name for name in names if not name.startswith("."))
