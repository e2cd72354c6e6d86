import json

import pytest

from tests.training.report import runs
from training.report import facts


def test_a_run_in_words() -> None:
    assert facts.summary(runs.RECORD) == (
        "mlp on digits · 12,345 parameters · mirrored · 2 replicas"
    )
    assert facts.changed(runs.RECORD) == ["seed", "model_dir"]
    assert facts.settings(runs.RECORD)["train_steps"] == 40
    assert facts.machine(runs.RECORD) == {
        "strategy": "mirrored",
        "replicas": "2",
        "workers": "1",
        "devices": "GPU:0 GPU:1",
        "global batch": "64",
        "batch of a replica": "32",
        "parameters": "12,345",
        "python": "3.11.7",
        "keras": "3.15.1",
        "commit": "abc123, with changes",
        "command": "train.py --seed=3",
    }


def test_starts_and_end() -> None:
    record = runs.RECORD | {"ended": {"time": 1.7e9 + 90, "step": 40}}
    assert dict(facts.starts(record)) == {
        "start 1": "2023-11-14 22:13:20 UTC, from step 0",
        "start 2": "2023-11-14 22:14:20 UTC, from step 20",
        "end": "2023-11-14 22:14:50 UTC, at step 40",
    }


def test_the_last_of_many_starts() -> None:
    starts = [{"time": step, "step": step} for step in range(99)]
    found = dict(facts.starts({"starts": starts}))
    assert len(found) == 10
    assert found["start 99"].endswith("from step 98")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["a=1", "b=2"], "a=1,b=2"),
        (None, "unset"),
        ("", "unset"),
        (True, "true"),
        (0, "0"),
        ("x" * 1000, "x" * 400 + " …"),
    ],
    ids=lambda value: str(value)[:10],
)
def test_words_of_the_command_line(value, text) -> None:
    assert facts.word(value) == text


@pytest.mark.parametrize("key", runs.RECORD)
@pytest.mark.parametrize("value", [None, 5, "word", [None], {"a": None}])
def test_what_is_not_as_expected_is_left_out(key, value) -> None:
    record = runs.RECORD | {key: value}
    facts.settings(record)
    facts.changed(record)
    facts.machine(record)
    facts.summary(record)
    list(facts.starts(record))


@pytest.mark.parametrize("text", ["", "{", "[1]", "7"])
def test_a_damaged_file_says_nothing(tmp_path, text) -> None:
    (tmp_path / "run.json").write_text(text)
    assert facts.read(str(tmp_path)) == {}


def test_the_file_is_read(tmp_path) -> None:
    assert facts.read(str(tmp_path)) == {}
    folder = runs.write(tmp_path)
    assert facts.read(folder) == json.loads(json.dumps(runs.RECORD))
