import time

import numpy as np
import pytest
import tensorflow as tf

from examples import _timing


def test_takes_turns_and_leaves_out_the_first(monkeypatch) -> None:
    clock, order = [0.0], []
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def contestant(name: str, *seconds: float):
        durations = iter(seconds)

        def run() -> tf.Tensor:
            order.append(name)
            clock[0] += next(durations)
            return tf.constant(0)

        return run

    found = _timing.compare(
        {"a": contestant("a", 9, 1, 3, 2), "b": contestant("b", 9, 4, 4, 7)},
        rounds=3,
    )
    assert "".join(order) == "abababab"
    assert found == pytest.approx({"a": 2000, "b": 4000})


def test_waits_for_every_tensor_of_a_nest() -> None:
    read = []

    class Tensor:
        def __init__(self, name: str) -> None:
            self.name = name

        def __array__(self, *_: object, **__: object):
            read.append(self.name)
            return np.zeros([])

    nest = {"a": Tensor("a"), "b": [Tensor("b"), Tensor("c")]}
    _timing.compare({"one": lambda: nest}, rounds=1)
    assert read == ["a", "b", "c"] * 2
