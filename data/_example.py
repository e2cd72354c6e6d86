"""What a `tf.train.Example` holds, and how to read others like it."""

import dataclasses
import math
from typing import Any
from typing import NamedTuple

import tensorflow as tf
from google.protobuf.message import DecodeError

from data import _image

_FEATURES = ("image/encoded", "features")
_LABELS = ("image/class/label", "labels")
# Kind of a feature → how it is read.
_DTYPES = {"float_list": tf.float32, "int64_list": tf.int64}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What follows the folder."""

    features: str = ""
    """Key of the features; empty: one of those that are usual."""
    labels: str = ""
    """Key of the labels; empty: one of those that are usual."""
    weights: str = ""
    """Key of what an example counts; empty: each counts 1."""
    classes: int = 0
    """Number of classes; 0: a regression."""
    shape: tuple[int, ...] = ()
    """Shape of features that are numbers; empty: a vector."""
    size: tuple[int, ...] = (224, 224)
    """Height and width to which all images are resized."""
    channels: int = 3
    """3 for colour, 1 for grey."""

    def __post_init__(self) -> None:
        _image.check(self.size, self.channels)
        if self.classes < 0 or self.classes == 1:
            raise ValueError(
                f"classes={self.classes}: must be 2 or more, or 0 for a "
                "regression."
            )


class Layout(NamedTuple):
    """How records are read."""

    schema: dict[str, tf.io.FixedLenFeature]
    features_key: str
    labels_key: str
    features: tf.TensorSpec
    labels: tf.TensorSpec


def find_layout(record: bytes, chosen: Options) -> Layout:
    """Looks into a record.

    Raises:
        ValueError: saying what is missing or does not fit, as the end of a
            sentence.
    """
    try:
        example = tf.train.Example.FromString(record)
    except DecodeError as error:
        raise ValueError("the first record is no tf.train.Example") from error
    found = example.features.feature
    features_key = _find(found, "features", chosen.features, _FEATURES)
    labels_key = _find(found, "labels", chosen.labels, _LABELS)
    stored, features = _features(found[features_key], features_key, chosen)
    num_labels, labels = _labels(found[labels_key], labels_key, chosen)
    schema = {features_key: stored, labels_key: num_labels}
    if chosen.weights:
        key = _find(found, "weights", chosen.weights, ())
        if len(found[key].float_list.value) != 1:
            raise ValueError(
                f"{key} of the first record is a "
                f"{found[key].WhichOneof('kind')}; a weight must be one float"
            )
        schema[key] = tf.io.FixedLenFeature([], tf.float32)
    return Layout(schema, features_key, labels_key, features, labels)


def read(record: tf.Tensor, layout: Layout, chosen: Options) -> tuple[Any, ...]:
    """Reads a record, string `[]`; TensorFlow code.

    Returns:
        (features, labels), or (features, labels, weight). Reading fails at a
        record that is not as the layout says.
    """
    parsed = tf.io.parse_single_example(record, layout.schema)
    features = parsed[layout.features_key]
    if features.dtype == tf.string:
        features = _image.decode(features, chosen.size, chosen.channels)
    else:
        features = tf.reshape(features, layout.features.shape)
    labels = tf.cast(parsed[layout.labels_key], layout.labels.dtype)
    if chosen.classes:
        fits = (labels >= 0) & (labels < chosen.classes)
        told = ["a label must be below classes, but is", labels]
        with tf.control_dependencies([tf.debugging.Assert(fits, told)]):
            labels = tf.identity(labels)
    if chosen.weights:
        return features, labels, parsed[chosen.weights]
    return features, labels


def _find(found: Any, what: str, key: str, usual: tuple[str, ...]) -> str:
    for name in [key] if key else usual:
        if name in found and found[name].WhichOneof("kind"):
            return name
    raise ValueError(
        f"the first record has no {key or ' or '.join(usual)}, but "
        f"{', '.join(sorted(found)) or 'nothing'}; say which are the {what} "
        f"by {what}=KEY"
    )


def _features(
    feature: Any, key: str, chosen: Options
) -> tuple[tf.io.FixedLenFeature, tf.TensorSpec]:
    """Returns how features are stored, and what they become."""
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value
    if kind == "bytes_list":
        try:
            _image.decode(tf.constant(values[0]), chosen.size, chosen.channels)
        except (IndexError, tf.errors.InvalidArgumentError) as error:
            raise ValueError(
                f"{key} of the first record is no jpeg, png, bmp or gif that "
                "can be read; store an encoded image, or numbers"
            ) from error
        image = tf.TensorSpec([*chosen.size, chosen.channels], tf.float32)
        return tf.io.FixedLenFeature([], tf.string), image
    shape = chosen.shape or (len(values),)
    if min(shape) < 1 or math.prod(shape) != len(values):
        shown = "x".join(map(str, shape))
        raise ValueError(
            f"{key} of the first record holds {len(values)} numbers, not "
            f"{shown}; give their shape, such as shape=28x28x1"
        )
    stored = tf.io.FixedLenFeature([len(values)], _DTYPES[kind])
    return stored, tf.TensorSpec(shape, _DTYPES[kind])


def _labels(
    feature: Any, key: str, chosen: Options
) -> tuple[tf.io.FixedLenFeature, tf.TensorSpec]:
    """Returns how labels are stored, and what they become."""
    kind = feature.WhichOneof("kind")
    count = len(getattr(feature, kind).value)
    if kind == "int64_list" and count == 1 and chosen.classes:
        return tf.io.FixedLenFeature([], tf.int64), tf.TensorSpec([], tf.int32)
    if kind == "float_list" and count and not chosen.classes:
        stored = tf.io.FixedLenFeature([count], tf.float32)
        return stored, tf.TensorSpec([count], tf.float32)
    raise ValueError(
        f"{key} of the first record is a {kind} of {count}; it must be one "
        "int64, a class, with classes=C given, or floats without"
    )
