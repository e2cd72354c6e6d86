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
    ],
)
def test_rejects_bad_config(values: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        DataConfig(**values)


@pytest.mark.parametrize(
    ("task", "num_examples", "message"),
    [
        ("ranking", {"train": 1, "eval": 1}, "task='ranking'"),
        ("regression", {"train": 0, "eval": 1}, "train must have 1"),
        ("regression", {"train": 1}, "eval must have 1"),
    ],
    ids=["task", "empty", "missing"],
)
def test_rejects_bad_info(
    task: str, num_examples: dict[str, int], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        DatasetInfo(
            task=task, num_examples=num_examples, features=None, labels=None
        )
