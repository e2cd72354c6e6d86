from collections.abc import Iterator

import pytest
import tensorflow as tf

import placement
from errors import RequestError


class Recorder:
    """Does nothing but say what it was asked."""

    num_devices = 4

    def __init__(self, partition: tuple[int, ...] = ()) -> None:
        self.partition_dimensions = partition
        self.asked: list[tuple[object, ...]] = []

    def split(self, tensor: tf.Tensor, partition: tuple[int, ...]) -> tf.Tensor:
        self.asked.append(("split", partition))
        return tensor

    def replicate(self, tensor: tf.Tensor) -> tf.Tensor:
        self.asked.append(("replicate",))
        return tensor

    def assign(self, tensor: tf.Tensor, logical_device: int) -> tf.Tensor:
        self.asked.append(("assign", logical_device))
        return tensor


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    with placement.using(recorder):
        yield recorder


def test_nothing_happens_where_a_replica_has_one_device() -> None:
    tensor = tf.zeros([3, 5])
    assert placement.split(tensor, 1) is tensor
    assert placement.replicate(tensor) is tensor
    assert placement.assign(tensor, 7) is tensor
    assert placement.place_features(tensor) is tensor


def test_says_how_many_devices_a_replica_has(recorder: Recorder) -> None:
    assert placement.num_devices() == 4
    with placement.using(None):
        assert placement.num_devices() == 1


def test_what_is_asked_reaches_the_placer(recorder: Recorder) -> None:
    placement.split(tf.zeros([2, 8]), 1)
    placement.split(tf.zeros([2, 8, 3]), -2)
    placement.replicate(tf.zeros([3]))
    placement.assign(tf.zeros([3]), 3)
    placement.place_features(tf.zeros([3]))
    assert recorder.asked == [
        ("split", (1, 4)),
        ("split", (1, 4, 1)),
        ("replicate",),
        ("assign", 3),
        ("replicate",),
    ]


def test_features_are_split_as_the_flag_says() -> None:
    recorder = Recorder((1, 2, 2, 1))
    with placement.using(recorder):
        placement.place_features(tf.zeros([3, 8, 8, 1]))
    assert recorder.asked == [("split", (1, 2, 2, 1))]


def test_a_placer_is_used_until_another_is(recorder: Recorder) -> None:
    other = Recorder()
    with placement.using(other):
        placement.replicate(tf.zeros([]))
        with placement.using(None):
            placement.replicate(tf.zeros([]))
    placement.replicate(tf.zeros([]))
    assert len(other.asked) == len(recorder.asked) == 1


@pytest.mark.parametrize("shape", [[2, 6], [2, None]], ids=str)
def test_an_axis_that_cannot_be_shared_is_refused(
    recorder: Recorder, shape: list[int | None]
) -> None:
    with pytest.raises(RequestError, match="4 logical devices cannot share"):
        placement.split(tf.TensorSpec(shape), 1)


@pytest.mark.parametrize("device", [-1, 4])
def test_a_device_that_is_not_there_is_refused(
    recorder: Recorder, device: int
) -> None:
    with pytest.raises(RequestError, match=f"device {device} was asked for"):
        placement.assign(tf.zeros([]), device)


@pytest.mark.parametrize(
    ("partition", "shape", "words"),
    [
        ((1, 2), (8, 4, 4), "has 2 entries, but a feature has 3 dimensions"),
        ((1, 3), (8, 4), "3 parts do not divide dimension 1 of the features"),
        ((1, 2), (8, None), "2 parts do not divide dimension 1"),
        ((3, 1), (8, 4), "3 parts do not divide dimension 0"),
    ],
)
def test_a_partition_that_does_not_fit_is_refused(
    partition: tuple[int, ...], shape: tuple[int | None, ...], words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        placement.check_partition(partition, shape)


def test_a_batch_that_is_not_known_yet_may_be_split() -> None:
    placement.check_partition((2, 2), (None, 4))
