import pathlib

import pytest
import tensorflow as tf

from errors import RequestError
from training import TrainConfig
from training import profile
from training.profile import Window


@pytest.mark.parametrize(
    ("words", "window"),
    [
        ("", None),
        ("100:110", Window(100, 110, on_all=False)),
        ("0:1@all", Window(0, 1, on_all=True)),
    ],
)
def test_words_of_a_window(words, window) -> None:
    assert profile.parse(TrainConfig(profile=words).profile) == window


@pytest.mark.parametrize("words", ["100", "110:100", "5:5", "a:b", "1:2@some"])
def test_refuses_what_is_no_window(words) -> None:
    with pytest.raises(RequestError, match=f"--profile={words}: must be"):
        TrainConfig(profile=words)


class _Run:
    """Counts steps, and what is captured meanwhile."""

    def __init__(self, monkeypatch, step: int = 0) -> None:
        self.step = step
        self.captured: list[int] = []
        self.is_on = False
        profiler = tf.profiler.experimental
        monkeypatch.setattr(profiler, "start", lambda _: self._set(True))
        monkeypatch.setattr(profiler, "stop", lambda: self._set(False))

    def _set(self, is_on: bool) -> None:
        assert self.is_on != is_on
        self.is_on = is_on

    def train(self, num_steps: int) -> dict[str, float]:
        if self.is_on:
            self.captured += range(self.step, self.step + num_steps)
        self.step += num_steps
        return {"loss": 1.0}

    def go(self, words: str, loops: list[int], is_chief: bool = True) -> None:
        window = profile.parse(words)
        with profile.around(
            self.train, window, lambda: self.step, "folder", is_chief
        ) as train:
            for num_steps in loops:
                assert train(num_steps) == {"loss": 1.0}


@pytest.mark.parametrize(
    ("words", "start", "loops", "captured"),
    [
        ("2:4", 0, [2, 2, 2], [2, 3]),
        ("2:6", 0, [2, 2, 2, 2], [2, 3, 4, 5]),
        ("0:1", 0, [1, 5], [0]),
        # A run that continues within the window, or after it.
        ("2:6", 4, [2, 2], [4, 5]),
        ("2:4", 4, [2, 2], []),
    ],
    ids=["one_loop", "two_loops", "at_once", "within", "after"],
)
def test_captures_the_window(monkeypatch, words, start, loops, captured):
    run = _Run(monkeypatch, start)
    run.go(words, loops)
    assert run.captured == captured


def test_ends_with_the_run(monkeypatch) -> None:
    run = _Run(monkeypatch)
    run.go("2:6", [2, 2])
    assert run.captured == [2, 3]
    assert not run.is_on


def test_ends_if_the_run_fails(monkeypatch) -> None:
    run = _Run(monkeypatch)

    def train(num_steps: int) -> None:
        assert run.is_on
        raise RuntimeError("a loss is not finite")

    monkeypatch.setattr(run, "train", train)
    with pytest.raises(RuntimeError, match="not finite"):
        run.go("0:6", [2])
    assert not run.is_on


@pytest.mark.parametrize(("words", "count"), [("0:1", 0), ("0:1@all", 1)])
def test_other_workers_capture_if_asked(monkeypatch, words, count) -> None:
    run = _Run(monkeypatch)
    run.go(words, [1, 1], is_chief=False)
    assert len(run.captured) == count


def test_trouble_is_no_end(monkeypatch, capsys) -> None:
    run = _Run(monkeypatch)

    def start(_: str) -> None:
        raise tf.errors.AlreadyExistsError(None, None, "another one runs")

    monkeypatch.setattr(tf.profiler.experimental, "start", start)
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: None)
    run.go("0:1", [1, 1])
    assert "--profile: another one runs" in capsys.readouterr().err


def test_leaves_what_tensorboard_reads(tmp_path) -> None:
    double = tf.function(lambda x: x * 2)
    steps = [0]

    def train(num_steps: int) -> dict[str, float]:
        steps[0] += num_steps
        return {"loss": float(double(tf.constant(1.0)).numpy())}

    window = profile.parse("0:1")
    with profile.around(
        train, window, lambda: steps[0], str(tmp_path), True
    ) as profiled:
        profiled(1)
    (found,) = pathlib.Path(tmp_path).glob("plugins/profile/*/*.xplane.pb")
    assert found.stat().st_size > 0
