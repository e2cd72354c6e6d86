"""`python train.py` as a user types it."""

import json
import re

import pytest

from tests import processes


def _one_line(done, code: int) -> str:
    """Returns the single line of a refusal, without TensorFlow's own notes."""
    lines = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("train.py: ")
    ]
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_trains_evaluates_and_says_what_to_do_next(tmp_path) -> None:
    done = processes.run(
        "--train_steps=20",
        "--steps_per_loop=10",
        f"--model_dir={tmp_path}",
        "--model=mlp",
        "--export=saved_model",
    )
    assert done.returncode == 0, done.stderr
    assert "1 worker, 1 replica; here: CPU:0" in done.stdout
    # TensorFlow's notes on its start are not among what is said.
    assert not re.search("^(WARNING: All log|I0000 )", done.stderr, re.M)
    assert f"Starting at step 0 of 20; everything is in {tmp_path}" in (
        done.stdout
    )
    assert "step 10/20: loss" in done.stdout
    assert "Evaluation at step 20: loss" in done.stdout
    assert f"tensorboard.main --logdir {tmp_path}" in done.stdout
    assert "--train_steps=40" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {
        "lock",
        "run.json",
        "metrics.jsonl",
        "train.log",
        "best",
        "checkpoints",
        "summaries",
        "export",
    }
    flags = json.loads((tmp_path / "run.json").read_text())["flags"]
    assert {"--train_steps=20", "--model=mlp"} <= set(flags)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    parsed = [json.loads(line) for line in lines]
    common = {
        "time",
        "step",
        "split",
        "loss",
        "accuracy",
        "learning_rate",
        "steps_per_sec",
        "examples_per_sec",
    }
    more = {
        "eval": {"examples"},
        "train": {
            "gradient_norm",
            "weight_norm",
            "examples_per_sec_per_replica",
            "flops_per_step",
            "input_wait_share",
            "eval_share",
            "checkpoint_share",
            "goodput",
            "peak_memory_mb",
        },
    }
    for line in parsed:
        assert set(line) == common | more[line["split"]]
    assert parsed[-1]["examples"] == 359


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no_such_flag=1"], "no such flag"),
        (["cnn"], "unexpected argument 'cnn'"),
        (["--global_batch_size=-8"], "--global_batch_size=-8"),
        (["--model=no.such.model"], "--model=no.such.model"),
        (["--strategy=multi_worker_mirrored"], "--model_dir"),
        (
            ["--strategy=multi_worker_mirrored", "--model_dir=runs/x"],
            "TF_CONFIG",
        ),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(flags, message) -> None:
    assert message in _one_line(processes.run(*flags), 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            [
                "--strategy=mirrored",
                "--devices=cpu:0,cpu:1,cpu:2",
                "--global_batch_size=64",
            ],
            "--global_batch_size=64",
        ),
        (["--devices=gpu:0"], "gpu:0"),
        (["--model=mlp", "--model_options=wdth=3"], "wdth"),
        (["--optimizer_options=mometum=1"], "mometum"),
        (["--strategy=tpu"], "tpu"),
        (["--early_stopping=examples_per_sec"], "accuracy, loss"),
        (["--gradient_accumulation_steps=5"], "--gradient_accumulation_st"),
    ],
)
def test_what_only_tensorflow_can_tell_is_refused_too(
    tmp_path, flags, message
) -> None:
    done = processes.run(*flags, f"--model_dir={tmp_path / 'run'}")
    assert message in _one_line(done, 2)
    assert not (tmp_path / "run").exists()


def test_several_workers_under_another_strategy_are_refused() -> None:
    config = processes.tf_configs(2)[0]
    done = processes.run(env={"TF_CONFIG": config})
    assert "TF_CONFIG" in _one_line(done, 2)


def test_evaluates_the_newest_checkpoint(tmp_path) -> None:
    flags = ["--model=mlp", f"--model_dir={tmp_path}", "--train_steps=5"]
    refused = processes.run(*flags, "--mode=evaluate")
    assert "no checkpoint to evaluate" in _one_line(refused, 2)
    processes.run(*flags)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = processes.run(*flags, "--mode=evaluate")
    assert "Evaluation at step 5: loss" in done.stdout
    assert before == {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")
    }
