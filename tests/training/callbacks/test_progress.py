import re

import pytest

from tests import terminal
from training.callbacks import Context
from training.callbacks import progress

LOGS = {
    "loss": 0.51234,
    "accuracy": 0.875,
    "examples_per_sec": 12345.6,
    "steps_per_sec": 10.0,
}


def _context(model_dir: object, is_chief: bool = True) -> Context:
    return Context(None, str(model_dir), is_chief, 0, 400, steps_per_epoch=22.5)


def test_plain_lines_elsewhere(tmp_path, capsys) -> None:
    callback = progress.make(_context(tmp_path))
    callback.on_train_batch_end(100, LOGS)
    callback.on_test_end({"loss": 0.25, "accuracy": 1.0})
    callback.on_train_batch_end(400, LOGS)
    callback.on_train_end()
    lines = [
        "step 100/400: loss 0.5123, accuracy 0.8750, 0:30 to go, epoch 4.4, "
        "12,346 examples/s, 10.0 steps/s",
        "step 100: evaluation loss 0.2500, accuracy 1.0000",
        "step 400/400: loss 0.5123, accuracy 0.8750, 0:00 to go, epoch 17.8, "
        "12,346 examples/s, 10.0 steps/s",
    ]
    assert capsys.readouterr().out.splitlines() == lines
    log = (tmp_path / "train.log").read_text().splitlines()
    stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
    assert [stamp.sub("", line, count=1) for line in log] == lines
    assert all(map(stamp.match, log))


def test_a_restart_goes_on_with_the_log(tmp_path) -> None:
    for step in (100, 200):
        progress.make(_context(tmp_path)).on_train_batch_end(step, LOGS)
    assert len((tmp_path / "train.log").read_text().splitlines()) == 2


def test_a_log_that_cannot_be_written_is_not_worth_the_run(
    tmp_path, capsys
) -> None:
    callback = progress.make(_context(tmp_path / "none"))
    callback.on_train_batch_end(100, LOGS)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("step 100: ")
    assert first.endswith("could not be written: No such file or directory.")
    assert second.startswith("step 100/400: loss")


def test_an_object_store_has_no_log(capsys) -> None:
    progress.make(_context("gs://bucket/run")).on_train_batch_end(100, LOGS)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_says_when_a_layer_has_not_converged(tmp_path, capsys) -> None:
    callback = progress.make(_context(tmp_path))
    callback.on_test_end({"loss": 0.25, "a_converged": 1.0, "b_converged": 0.9})
    assert capsys.readouterr().out.splitlines() == [
        "step 0: evaluation loss 0.2500, b has not converged for 10.0%"
    ]


def test_interrupted_before_the_first_step(tmp_path, capsys) -> None:
    still = LOGS | {"steps_per_sec": 0.0, "examples_per_sec": 0.0}
    progress.make(_context(tmp_path)).on_train_batch_end(0, still)
    assert "to go" not in capsys.readouterr().out


def test_says_how_well_the_machine_is_used(tmp_path, capsys) -> None:
    callback = progress.make(_context(tmp_path))
    callback.on_train_batch_end(100, LOGS | {"mfu": 0.5, "goodput": 0.987})
    end = "10.0 steps/s, MFU 50.0%, goodput 98.7%\n"
    assert capsys.readouterr().out.endswith(end)


def test_one_live_line_on_a_terminal(tmp_path) -> None:
    with terminal.opened() as screen:
        callback = progress.make(_context(tmp_path))
        callback.on_train_batch_end(100, LOGS)
        callback.on_test_end({"loss": 0.25, "accuracy": 0.75})
        callback.on_train_batch_end(400, LOGS)
        callback.on_train_end()
        written = screen.read()
    live = "loss 0.512 acc 0.875 {}ETA {} ep {} 12.3k ex/s 10 st/s"
    assert terminal.lines(written) == [
        "100/400 " + live.format("", "0:30", "4.4"),
        "step 100: evaluation loss 0.2500, accuracy 0.7500",
        # Shown again below it, and then rewritten.
        "100/400 " + live.format("", "0:30", "4.4"),
        "400/400 " + live.format("eval 0.750 ", "0:00", "17.8"),
    ]
    # What stays on the screen ends its line; all else is rewritten.
    assert written.count("\n") == 1
    # In the log all is in full.
    assert "12,346 examples/s" in (tmp_path / "train.log").read_text()


def test_of_a_regression_the_loss_is_kept_in_sight(tmp_path) -> None:
    with terminal.opened() as screen:
        callback = progress.make(_context(tmp_path))
        callback.on_test_end({"loss": 0.25, "a_converged": 0.5})
        callback.on_train_batch_end(400, LOGS)
        assert " eval 0.25 ETA " in screen.read()
        callback.on_train_end()


def test_no_line_is_wider_than_the_terminal(tmp_path) -> None:
    logs = LOGS | {"a_layer_with_a_long_name_converged": 0.5}
    with terminal.opened() as screen:
        callback = progress.make(_context(tmp_path))
        for columns in (80, 60, 200, 12):
            screen.resize(columns)
            callback.on_train_batch_end(100, logs)
            callback.on_test_end(logs)
            shown = terminal.lines(screen.read())
            assert [line for line in shown if len(line) > columns] == []
            if columns == 200:
                assert shown[0].endswith("12,346 examples/s, 10.0 steps/s")
        callback.on_train_end()


@pytest.mark.parametrize("rows", [0, 24])
def test_a_terminal_of_unknown_size_has_80_columns(tmp_path, rows) -> None:
    with terminal.opened() as screen:
        screen.resize(0, rows)
        callback = progress.make(_context(tmp_path))
        callback.on_train_batch_end(400, LOGS)
        live = (
            "400/400 loss 0.512 acc 0.875 ETA 0:00 ep 17.8 12.3k ex/s 10 st/s"
        )
        assert terminal.lines(screen.read()) == [live]
        callback.on_test_end({"loss": 0.25})
        line = "step 400: evaluation loss 0.2500"
        assert terminal.lines(screen.read()) == [line, live]
        callback.on_train_end()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (75, "1:15"), (100_000, "27:46:40")]
)
def test_how_long(seconds, text) -> None:
    assert progress._clock(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(9.96, "9.96"), (999.6, "1k"), (12345, "12.3k"), (3e6, "3M"), (2e9, "2G")],
)
def test_three_digits(number, text) -> None:
    assert progress._compact(number) == text


def test_other_workers_are_silent(tmp_path) -> None:
    with terminal.opened() as screen:
        callback = progress.make(_context(tmp_path, is_chief=False))
        callback.on_train_batch_end(100, LOGS)
        callback.on_test_end(LOGS)
        callback.on_train_end()
        assert screen.read() == ""
    assert not list(tmp_path.iterdir())
