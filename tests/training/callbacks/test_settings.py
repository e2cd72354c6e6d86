import dataclasses

from data import DataConfig
from model import ModelConfig
from training import RunConfig
from training import TrainConfig
from training.callbacks import _settings

CONFIG = {
    "run": dataclasses.asdict(RunConfig(seed=3)),
    "data": dataclasses.asdict(DataConfig()),
    "model": dataclasses.asdict(ModelConfig(model_options=("a=1", "b=2"))),
    "train": dataclasses.asdict(TrainConfig(learning_rate=0.5)),
}


def test_the_text_has_every_flag() -> None:
    lines = _settings.as_text(CONFIG).splitlines()
    assert lines[:3] == ["| flag | value |", "|---|---|", "| **run** | |"]
    assert "| model_options | a=1, b=2 |" in lines
    assert "| learning_rate | 0.5 |" in lines
    assert "| weight_decay | default |" in lines
    assert "| early_stopping | none |" in lines
    assert "| optimizer_options | none |" in lines
    flags = sum(len(group) for group in CONFIG.values())
    assert len(lines) == 2 + len(CONFIG) + flags


def test_hyperparameters_are_what_decides_the_result() -> None:
    found = _settings.hyperparameters(CONFIG)
    assert found["seed"] == 3
    assert found["learning_rate"] == 0.5
    assert found["model_options"] == "a=1, b=2"
    assert found["weight_decay"] == "default"
    assert not found.keys() & {"model_dir", "callbacks", "steps_per_loop"}
    assert not found.keys() & {"download", "profile"}
    assert all(isinstance(v, bool | int | float | str) for v in found.values())


def test_what_is_left_out_are_flags() -> None:
    flags = {name for group in CONFIG.values() for name in group}
    assert flags >= _settings._INDIFFERENT


def test_no_flags_give_no_hyperparameters() -> None:
    assert _settings.hyperparameters({}) == {}
