import sys

import pytest

from training.callbacks import Context
from training.callbacks import progress

LOGS = {
    "loss": 0.51234,
    "accuracy": 0.875,
    "examples_per_sec": 12345.6,
    "steps_per_sec": 10.0,
}


def _context(is_chief: bool = True) -> Context:
    return Context(None, "unused", is_chief, 0, 400)


def test_plain_lines_elsewhere(capsys) -> None:
    callback = progress.make(_context())
    callback.on_train_batch_end(100, LOGS)
    callback.on_test_end({"loss": 0.25, "accuracy": 1.0})
    assert capsys.readouterr().out.splitlines() == [
        "step 100/400: loss 0.5123, accuracy 0.8750, examples/s 12,346, "
        "00:30 to go",
        "step 100: evaluation loss 0.2500, accuracy 1.0000",
    ]


def test_says_when_a_layer_has_not_converged(capsys) -> None:
    callback = progress.make(_context())
    callback.on_test_end({"loss": 0.25, "a_converged": 1.0, "b_converged": 0.9})
    assert capsys.readouterr().out.splitlines() == [
        "step 0: evaluation loss 0.2500, b has not converged for 10.0%"
    ]


def test_a_bar_on_a_terminal(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    callback = progress.make(_context())
    callback.on_train_batch_end(100, LOGS)
    callback.on_test_end({"loss": 0.25})
    callback.on_train_batch_end(400, LOGS)
    callback.on_train_end()
    captured = capsys.readouterr()
    assert "400/400" in captured.err
    assert "accuracy 0.8750" in captured.err
    assert "step 100: evaluation loss 0.2500" in captured.out


@pytest.mark.parametrize("terminal", [True, False])
def test_other_workers_are_silent(capsys, monkeypatch, terminal) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    callback = progress.make(_context(is_chief=False))
    callback.on_train_batch_end(100, LOGS)
    callback.on_test_end(LOGS)
    callback.on_train_end()
    assert capsys.readouterr() == ("", "")
