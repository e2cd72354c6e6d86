"""Every way a checkpoint can be spoiled is noticed, said, and gone round."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from errors import RequestError
from tests.training import saving
from training import checkpoint


def _variables(strategy: tf.distribute.Strategy) -> dict[str, tf.Variable]:
    with strategy.scope():
        return {
            "step": tf.Variable(1, dtype=tf.int64),
            "model/kernel": tf.Variable(tf.ones([8])),
        }


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10])


def _write_marker_of(step: object) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"step": step}))

    return write


# Suffix, what is done to it, what is said of it.
DAMAGES = {
    "cut data": ("data-00000-of-00001", _cut, r"data has 10 bytes, not \d+"),
    "cut index": ("index", _cut, r"index has 10 bytes, not \d+"),
    "cut marker": ("json", _cut, "marker cannot be read"),
    "bit in data": ("data-00000-of-00001", _flip, "data has another checksum"),
    "bit in index": ("index", _flip, "index has another checksum"),
    "bit in marker": ("json", _flip, "index|data|marker"),
    "no data": ("data-00000-of-00001", Path.unlink, "data is missing"),
    "no index": ("index", Path.unlink, "index is missing"),
    "empty data": (
        "data-00000-of-00001",
        lambda path: path.write_bytes(b""),
        "data has 0 bytes",
    ),
    "empty marker": (
        "json",
        lambda path: path.write_bytes(b""),
        "marker cannot be read",
    ),
    "marker of another step": (
        "json",
        _write_marker_of(4),
        "marker is of step 4",
    ),
    "marker of something else": (
        "json",
        lambda path: path.write_text("[1, 2]"),
        "marker cannot be read",
    ),
    "marker of zeros": (
        "json",
        lambda path: path.write_bytes(bytes(100)),
        "marker cannot be read",
    ),
    "folder for data": (
        "data-00000-of-00001",
        lambda path: (path.unlink(), path.mkdir()),
        "data",
    ),
}
each_damage = pytest.mark.parametrize(
    ("suffix", "spoil", "message"), DAMAGES.values(), ids=DAMAGES
)


@each_damage
def test_goes_back_over_a_damaged_checkpoint(
    tmp_path, strategy_of, capsys, suffix, spoil, message
) -> None:
    strategy = strategy_of(1)
    variables = _variables(strategy)
    for step in (5, 6, 7):
        variables["step"].assign(step)
        saving.save(strategy, variables, str(tmp_path), step, 3)
    for step in (6, 7):
        spoil(tmp_path / "checkpoints" / f"step-{step}.{suffix}")
    step = checkpoint.restore(strategy, variables, str(tmp_path))
    assert step == variables["step"].numpy() == 5
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line, damaged in zip(lines, (7, 6), strict=True):
        assert re.fullmatch(
            rf"checkpoints/step-{damaged} is damaged \(its ({message}).*\); "
            "going on from step-5",
            line,
        )


@each_damage
def test_refuses_if_none_is_whole(
    tmp_path, strategy_of, suffix, spoil, message
) -> None:
    strategy = strategy_of(1)
    variables = _variables(strategy)
    saving.save(strategy, variables, str(tmp_path), 7, keep=1)
    spoil(tmp_path / "checkpoints" / f"step-7.{suffix}")
    with pytest.raises(
        RequestError, match=rf"every .* damaged \(step-7: its ({message})"
    ):
        checkpoint.restore(strategy, variables, str(tmp_path))
    assert variables["step"].numpy() == 1
