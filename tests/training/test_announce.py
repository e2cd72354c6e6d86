import sys

import pytest

from training import TrainConfig
from training import announce


@pytest.mark.parametrize(
    ("replicas", "where"),
    [
        (1, "1 worker, 1 replica; here: CPU:0"),
        (2, "1 worker, 2 replicas; here: CPU:0, CPU:1"),
    ],
)
def test_start_counts_workers_and_replicas(
    strategy_of, capsys, replicas, where
) -> None:
    announce.start(strategy_of(replicas), "runs/a", 0, 10)
    assert where in capsys.readouterr().out


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (0, "Starting at step 0 of 80; everything is in runs/a"),
        (40, "Continuing at step 40 of 80; everything is in runs/a"),
        (80, "Already at step 80 of 80; everything is in runs/a"),
    ],
)
def test_start_says_where_the_run_stands(
    strategy_of, capsys, step, message
) -> None:
    announce.start(strategy_of(1), "runs/a", step, 80)
    assert message in capsys.readouterr().out


def test_result_leaves_out_speed_and_rate(capsys) -> None:
    logs = {"loss": 0.25, "examples": 9, "steps_per_sec": 1}
    announce.result(80, logs | {"learning_rate": 0.1})
    expected = "Evaluation at step 80: loss 0.25, examples 9\n"
    assert capsys.readouterr().out == expected


def test_commands_to_go_on(strategy_of, capsys, monkeypatch) -> None:
    words = "train.py|--model=a b|--train_steps=9|--model_dir|x".split("|")
    monkeypatch.setattr(sys, "argv", words)
    config = TrainConfig(train_steps=9, export=("keras",))
    announce.next_commands(strategy_of(1), "runs/a", config)
    look, page, go_on, exported = capsys.readouterr().out.splitlines()
    assert look.endswith("-m tensorboard.main --logdir runs/a")
    assert page.endswith("-m training.report runs/a")
    assert go_on.endswith(
        "train.py '--model=a b' --model_dir=runs/a --train_steps=18"
    )
    assert exported.endswith("runs/a/export")


def test_workers_of_the_launcher_go_on_by_it(
    strategy_of, capsys, monkeypatch
) -> None:
    """`train.py` alone would be refused: it is told of no other worker."""
    monkeypatch.setenv("LAUNCHED", "2")
    words = ["train.py", "--strategy=multi_worker_mirrored", "--model=mlp"]
    monkeypatch.setattr(sys, "argv", words)
    announce.next_commands(strategy_of(1), "runs/a", TrainConfig(train_steps=9))
    assert (
        "launch.py --num_workers=2 -- --model=mlp --model_dir=runs/a "
        "--train_steps=18\n"
    ) in capsys.readouterr().out


def test_a_page_that_is_there_needs_no_command(strategy_of, capsys) -> None:
    config = TrainConfig(callbacks=("report",))
    announce.next_commands(strategy_of(1), "runs/a", config)
    assert "As a page:   runs/a/report.html\n" in capsys.readouterr().out


def test_a_schedule_with_an_end_cannot_be_prolonged(
    strategy_of, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py"])
    config = TrainConfig(learning_rate_schedule="cosine")
    announce.next_commands(strategy_of(1), "runs/a", config)
    assert capsys.readouterr().out.endswith("train.py --model_dir=runs/a\n")
