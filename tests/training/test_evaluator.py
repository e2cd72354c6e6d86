"""A training's folder with small checkpoints; evaluation is a stand-in."""

import json
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from errors import RequestError
from errors import RunError
from flags import command_line
from tests.training import saving
from training import TrainConfig
from training import evaluator
from training import record
from training import state as state_lib


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_POLL_SECS", 0.01)


class Training:
    """What a training writes, without training."""

    def __init__(self, strategy: tf.distribute.Strategy, folder: Path) -> None:
        self.strategy = strategy
        self.folder = folder
        with strategy.scope():
            inputs = keras.Input([1])
            outputs = keras.layers.Dense(1, name="dense")(inputs)
            model = keras.Model(inputs, outputs)
            self.state = state_lib.create(model, TrainConfig())
        configs = command_line.as_dict(command_line.Configs())
        configs["run"]["model_dir"] = str(folder)
        self.content = record.begin(strategy, str(folder), configs, model, 0)
        self.config = configs
        self.evaluated: list[int] = []

    def save(self, step: int, keep: int = 10) -> None:
        self.state.step.assign(step)
        self.state.model.trainable_variables[0].assign([[float(step)]])
        variables = self.state.variables()
        saving.save(self.strategy, variables, str(self.folder), step, keep)

    def save_best(self, step: int) -> None:
        self.save(step)
        best = {"step": step, "metric": "loss", "value": 1.0}
        variables = self.state.variables()
        saving.save_best(self.strategy, variables, str(self.folder), best)

    def end(self, step: int) -> None:
        record.end(str(self.folder), self.content, step)

    def evaluate(self) -> dict[str, float]:
        """Returns what only the weights of the checkpoint give."""
        step = int(self.state.step.numpy())
        self.evaluated.append(step)
        kernel = self.state.model.trainable_variables[0]
        return {"loss": float(kernel.numpy()[0, 0])}

    def run(self, mode: str = "follow", timeout: int = 60) -> dict[str, float]:
        config = {name: dict(group) for name, group in self.config.items()}
        config["run"]["mode"] = mode
        config["strategy"]["worker_timeout_secs"] = timeout
        return evaluator.run(self.strategy, self.state, self.evaluate, config)

    def lines(self) -> list[dict[str, float]]:
        text = (self.folder / "evaluator" / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def training(tmp_path, strategy_of) -> Training:
    return Training(strategy_of(1), tmp_path / "run")


def test_evaluates_the_newest_alone(training, capsys) -> None:
    training.save(5)
    training.save(10)
    assert training.run("evaluate") == {"loss": 10.0}
    assert training.evaluated == [10]
    assert "Evaluation at step 10: loss 10" in capsys.readouterr().out
    assert not (training.folder / "evaluator").exists()


@pytest.mark.parametrize(
    ("word", "step"), [("newest", 15), ("best", 5), ("10", 10)]
)
def test_evaluates_the_checkpoint_that_is_asked_for(
    training, capsys, word, step
) -> None:
    training.save_best(5)
    training.save(10)
    training.save(15)
    training.config["run"]["checkpoint"] = word
    assert training.run("evaluate") == {"loss": step}
    assert f"Evaluation at step {step}: " in capsys.readouterr().out


def test_a_path_says_the_folder_too(training) -> None:
    training.save_best(5)
    training.save(10)
    path = str(training.folder / "best" / "step-5")
    training.config["run"] |= {"model_dir": "", "checkpoint": path}
    assert training.run("evaluate") == {"loss": 5.0}


def test_a_checkpoint_that_is_not_there_is_refused(training) -> None:
    training.save(10)
    training.config["run"]["checkpoint"] = "7"
    with pytest.raises(RequestError, match=r"no checkpoint 7; it has 10\."):
        training.run("evaluate")


def test_follows_until_the_training_has_ended(training) -> None:
    training.save(5)
    evaluate = training.evaluate

    def evaluate_and_train_on() -> dict[str, float]:
        result = evaluate()
        if result["loss"] == 5:
            training.save(10)
            training.end(10)
        return result

    training.evaluate = evaluate_and_train_on
    assert training.run() == {"loss": 10.0}
    lines = [(line["step"], line["loss"]) for line in training.lines()]
    assert lines == [(5, 5.0), (10, 10.0)]
    assert list((training.folder / "summaries" / "evaluator").iterdir())


def test_goes_on_after_what_it_has_evaluated(training) -> None:
    training.save(5)
    training.end(5)
    training.run()
    training.save(10)
    training.run()
    assert training.evaluated == [5, 10]
    assert not training.run()


def test_passes_over_what_is_removed(training, capsys) -> None:
    training.save(5)
    training.save(10)
    evaluate = training.evaluate

    def evaluate_and_train_on() -> dict[str, float]:
        result = evaluate()
        if result["loss"] == 5:
            training.save(15, keep=1)
            training.end(15)
        return result

    training.evaluate = evaluate_and_train_on
    training.run()
    assert training.evaluated == [5, 15]
    assert "step 10 is passed over: " in capsys.readouterr().out


def test_gives_up_on_a_training_that_never_begins(training) -> None:
    with pytest.raises(RunError, match=r"no checkpoint appeared in .* 0 s"):
        training.run(timeout=0)


def test_another_model_is_refused(training) -> None:
    training.save(5)
    training.config["model"]["model"] = "cnn"
    with pytest.raises(RequestError, match="--model=cnn"):
        training.run()


def test_nothing_that_could_be_read_is_an_error(training, capsys) -> None:
    training.save(5)
    training.end(5)
    for path in (training.folder / "checkpoints").glob("*.index"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match="none of the 1 new checkpoints"):
        training.run()
    assert "evaluated: 0" in capsys.readouterr().out


def test_a_folder_that_cannot_be_used_is_one_line(training) -> None:
    training.save(5)
    (training.folder / "evaluator").write_text("in the way")
    with pytest.raises(RunError, match="evaluator cannot be used: "):
        training.run()
