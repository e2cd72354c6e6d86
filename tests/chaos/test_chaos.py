"""The short form of `make chaos`, and whether the tool can find anything."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.chaos import chaos
from tests.chaos import moments
from tests.chaos import outcome
from tests.chaos import parts

# Part → faults.
SHORT = {
    "kill_one_device": 2,
}
LONGER = {
    "damage": 1,
    "fill_and_continue": 1,
    "term_launched": 1,
    "kill_mirrored": 2,
    "kill_two_workers": 2,
    "kill_launched": 2,
    "kill_at_meeting": 2,
    "stop_two_workers": 1,
    "fill_and_stop": 1,
    "cut": 1,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is left alone is trained once for all."""
    return tmp_path_factory.mktemp("chaos")


def check(name: str, count: int, root: Path) -> None:
    result = parts.run(name, count, seed=1, root=root)
    if result["skipped"]:
        pytest.skip(result["skipped"])
    assert not result["problems"]
    assert result["recovered"] >= count


@pytest.mark.parametrize("name", SHORT)
def test_training_survives(name: str, root: Path) -> None:
    check(name, SHORT[name], root)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONGER)
def test_training_survives_more(name: str, root: Path) -> None:
    check(name, LONGER[name], root)


def test_every_part_is_in_one_of_the_forms() -> None:
    assert SHORT.keys() | LONGER.keys() == parts.PARTS.keys()


def write(folder: Path, values: dict[str, np.ndarray]) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    tf.raw_ops.SaveV2(
        prefix=str(folder / "checkpoints" / "step-7"),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    return folder


def test_one_bit_makes_a_difference(tmp_path: Path) -> None:
    values = {"a": np.float32([0.0, 1.0]), "b": np.int64(3)}
    other = values | {"a": np.float32([-0.0, 1.0])}
    more = values | {"c": np.int64(3)}
    folders = [
        write(tmp_path / str(i), each)
        for i, each in enumerate((values, dict(values), other, more))
    ]
    assert outcome.different(folders[0], folders[1], 7) == []
    assert outcome.different(folders[0], folders[2], 7) == ["a"]
    assert outcome.different(folders[0], folders[3], 7) == ["c"]
    (found,) = outcome.different(folders[0], folders[1], 8)
    assert found.startswith("all: ")


def test_a_seed_draws_the_same_moments() -> None:
    kinds = ("start", "step", "save")
    first, again, other = (
        list(itertools.islice(moments.draw(seed, kinds), 20))
        for seed in ("1 a", "1 a", "2 a")
    )
    assert first == again
    assert first != other
    assert {each.kind for each in first} == set(kinds)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as end:
        chaos.main(["--only=nothing"])
    assert end.value.code == 2
    assert "there is no part nothing" in capsys.readouterr().err
