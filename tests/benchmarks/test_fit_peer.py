import itertools

import keras
import pytest

from benchmarks import _contest
from benchmarks import _fit_peer

TINY = _contest.Contest("mlp", ("hidden=8",), 5)


@pytest.mark.parametrize("make", [_fit_peer.make, _fit_peer.make_best])
def test_measures_itself_again_and_again(make) -> None:
    rate = make(TINY)
    assert rate(0.01) > 0
    assert rate(0.01) > 0


def test_counts_from_the_end_of_the_first_batch(monkeypatch) -> None:
    ticks = itertools.count(100.0)
    monkeypatch.setattr(_fit_peer.time, "perf_counter", lambda: next(ticks))
    stopwatch = _fit_peer._Stopwatch(seconds=3.0)
    model = keras.Sequential()
    stopwatch.set_model(model)
    model.stop_training = False
    for batch in (9, 19, 29):
        stopwatch.on_train_batch_end(batch)
        assert not model.stop_training
    stopwatch.on_train_batch_end(39)
    assert model.stop_training
    assert stopwatch.rate == 10.0
