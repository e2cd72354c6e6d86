import numpy as np

from benchmarks import _contest

TINY = _contest.Contest("mlp", ("hidden=8",), 5)


def test_ours_and_bare_measure_themselves() -> None:
    for rate in _contest.ours_and_bare(TINY):
        assert rate(0.01) > 0


def test_counts_the_steps_of_every_call() -> None:
    calls = []
    rate = _contest.repeated(lambda: calls.append(1), steps=7)
    found = rate(0.01)
    assert 0 < found <= 7 * len(calls) / 0.01


def test_peers_get_our_examples_in_batches_of_ours() -> None:
    batches = _contest.peer_batches()
    steps = 8192 // 128
    epoch = [batch for batch in batches.take(steps)]
    assert epoch[0][0].shape == (128, 28, 28, 1)
    features, labels = _contest.synthetic.arrays(_contest.DATA, "train")
    read = np.concatenate([features for features, _ in epoch])
    assert not np.array_equal(read, features)
    np.testing.assert_array_equal(
        np.sort(read[:, 0, 0, 0]), np.sort(features[:, 0, 0, 0])
    )
    assert len(labels) == len(read)
