import sys
import types

import tensorflow as tf

from benchmarks import _contest
from benchmarks import _orbit_peer

TINY = _contest.Contest("mlp", ("hidden=8",), 5)


def test_is_none_where_orbit_is_not_installed(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "orbit", None)
    assert _orbit_peer.make(TINY) is None


def test_trains_by_the_hooks_that_orbit_calls(monkeypatch) -> None:
    steps = []

    class StandardTrainer:
        """Calls the hooks as Orbit's does."""

        def __init__(self, dataset: tf.data.Dataset) -> None:
            self.iterator = iter(dataset)

        def train(self, count: tf.Tensor) -> dict[str, tf.Tensor]:
            self.train_loop_begin()
            for _ in range(int(count)):
                self.train_step(self.iterator)
                steps.append(self)
            return self.train_loop_end()

    orbit = types.ModuleType("orbit")
    orbit.StandardTrainer = StandardTrainer
    monkeypatch.setitem(sys.modules, "orbit", orbit)
    assert _orbit_peer.make(TINY)(0.01) > 0
    trainer = steps[0]
    assert len(steps) % 5 == 0
    assert int(trainer.optimizer.iterations) == len(steps)
    assert float(trainer.train_loop_end()["loss"]) > 0
