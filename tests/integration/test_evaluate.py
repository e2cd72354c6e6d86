"""`--mode=evaluate --checkpoint=…` finds what the training has logged."""

import json

import pytest

import train
from errors import RequestError
from flags.command_line import Configs
from model import ModelConfig
from tests import processes
from training import RunConfig
from training import TrainConfig

MODEL = ModelConfig(model="mlp")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Nine steps; the averages make the evaluated weights others."""
    folder = tmp_path_factory.mktemp("run")
    config = TrainConfig(
        train_steps=9,
        steps_per_loop=3,
        eval_every_steps=3,
        checkpoint_every_steps=3,
        ema_momentum=0.5,
        callbacks=(),
    )
    run = RunConfig(model_dir=str(folder))
    train.run(Configs(run=run, model=MODEL, train=config))
    return folder


@pytest.mark.parametrize("which", ["newest", "best", "3", "6", "path"])
def test_numbers_are_those_logged_then(trained, which, capsys) -> None:
    best = json.loads((trained / "best" / "best.json").read_text())
    step = {"newest": 9, "best": best["step"], "path": 6}.get(which) or int(
        which
    )
    path = trained / "checkpoints" / "step-6"
    run = RunConfig(
        mode="evaluate",
        model_dir="" if which == "path" else str(trained),
        checkpoint=str(path) if which == "path" else which,
    )
    config = TrainConfig(ema_momentum=0.5)
    result = train.run(Configs(run=run, model=MODEL, train=config))
    lines = processes.read_metrics(trained, "eval")
    logged = {line["step"]: line for line in lines}
    for name in ("loss", "accuracy"):
        assert result[name] == pytest.approx(logged[step][name], rel=1e-6)
    assert f"Evaluation at step {step}: loss" in capsys.readouterr().out


def test_one_that_is_not_there_is_refused_by_name(trained) -> None:
    run = RunConfig(mode="evaluate", model_dir=str(trained), checkpoint="4")
    config = TrainConfig(ema_momentum=0.5)
    message = r"no checkpoint 4; it has 3, 6, 9, best \(step \d\)\."
    with pytest.raises(RequestError, match=message):
        train.run(Configs(run=run, model=MODEL, train=config))
