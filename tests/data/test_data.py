import pytest

from data import DataConfig
from data import DatasetInfo
from errors import RequestError


def test_argument_follows_the_colon() -> None:
    assert DataConfig(dataset="digits").argument == ""
    assert DataConfig(dataset="tfds:mnist:3.*.*").argument == "mnist:3.*.*"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"global_batch_size": 0}, "--global_batch_size=0.*1 or more"),
        ({"skip_bad_examples": -1}, "--skip_bad_examples=-1.*0 or more"),
        ({"shard_by": "rows"}, "--shard_by=rows.*examples or files"),
        ({"class_weights": "even"}, "--class_weights=even: must be balanced"),
        ({"class_weights": "0:1,0:2"}, "0:1,0:2: .*each class once"),
        ({"class_weights": "0:-1"}, "0:-1: .*no weight below 0"),
        ({"class_weights": "0:nan"}, "0:nan: .*no weight below 0"),
        ({"class_weights": "-1:1"}, "-1:1: must be balanced"),
        ({"class_weights": "0:1,"}, "0:1,: must be balanced"),
        ({"augmentation": "a:b=1"}, "--augmentation=a:b=1: takes no argument"),
    ],
)
def test_rejects_bad_config(values: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        DataConfig(**values)


def test_reads_class_weights() -> None:
    config = DataConfig(class_weights="0:1,3:2.5")
    assert config.read_class_weights() == {0: 1.0, 3: 2.5}
    assert DataConfig(class_weights="balanced").read_class_weights() == {}


@pytest.mark.parametrize(
    ("task", "num_examples", "message"),
    [
        ("ranking", {"train": 1, "eval": 1}, "task='ranking'"),
        ("regression", {"train": 0, "eval": 1}, "train must have 1"),
        ("regression", {"train": 1}, "eval must have 1"),
        ("classification", {"train": 1, "eval": 1}, "num_classes=0: a class"),
    ],
    ids=["task", "empty", "missing", "classes"],
)
def test_rejects_bad_info(
    task: str, num_examples: dict[str, int], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        DatasetInfo(
            task=task, num_examples=num_examples, features=None, labels=None
        )
