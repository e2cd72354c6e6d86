"""Every model × every dataset × every strategy that a CPU can simulate.

The lists come from the folders, so nothing can stay out; what cannot take
part is named here with its reason.
"""

import importlib
import itertools

import numpy as np
import pytest

import train
from data import DataConfig
from data import DatasetInfo
from errors import RequestError
from flags import registry
from flags.command_line import Configs
from model import ModelConfig
from strategies import StrategyConfig
from tests.processes import ROOT
from training import RunConfig
from training import TrainConfig

NOT_SIMULABLE = {
    "multi_worker_mirrored": "needs processes: tests/equivalence",
    "tpu": "needs the hardware",
}
DEVICES = {"mirrored": ("cpu:0", "cpu:1")}
NO_DATA_HERE = {
    "images": "needs a folder: tests/data/test_images.py",
    "tfds": "needs a download: tests/data/test_tfds.py",
    "tfrecord": "needs a folder: tests/data/test_tfrecord.py",
}
# A dataset's argument that makes it small.
ARGUMENTS = {
    "linear_systems": ":size=4,examples=100",
    "synthetic": ":shape=32x32x3,classes=3,examples=16",
    "text": f":{ROOT / 'LICENSE'},length=64",
}
OPTIONS = {
    "keras_application": ("name=MobileNetV2", "resize=32"),
    "equilibrium": ("units=8", "filters=4", "maximum_iterations=3"),
    "transformer": ("layers=1", "width=8", "heads=2"),
}


def _has_images(_: str, info: DatasetInfo) -> bool:
    return len(getattr(info.features, "shape", ())) == 3


def _has_one_label(_: str, info: DatasetInfo) -> bool:
    return info.task != "classification" or not len(info.labels.shape)


# Model → whether it takes a dataset, and part of the sentence with which it
# refuses the others.
ANY = (_has_one_label, "default loss of its task needs")
TAKES = {
    "cnn": (_has_images, "height, width"),
    "keras_application": (_has_images, "height, width"),
    "solver": (
        lambda name, _: name == "linear_systems",
        "use --dataset=linear_systems",
    ),
    "transformer": (lambda name, _: name == "text", "use --dataset=text"),
}

# 35 s each on two cores: tracing 50 batch normalizations on each replica.
SLOW = {("keras_application", "mirrored")}
CELLS = [
    pytest.param(
        *cell, marks=[pytest.mark.slow] if (cell[0], cell[2]) in SLOW else []
    )
    for cell in itertools.product(
        registry.names("model"),
        sorted(set(registry.names("data")) - NO_DATA_HERE.keys()),
        sorted(set(registry.names("strategies")) - NOT_SIMULABLE.keys()),
    )
]


def test_what_is_left_out_exists() -> None:
    assert NOT_SIMULABLE.keys() < set(registry.names("strategies"))
    assert NO_DATA_HERE.keys() < set(registry.names("data"))


def _configs(model, dataset, strategy, model_dir) -> Configs:
    argument = ARGUMENTS.get(dataset, "")
    return Configs(
        RunConfig(model_dir=str(model_dir)),
        StrategyConfig(strategy=strategy, devices=DEVICES.get(strategy, ())),
        DataConfig(dataset=dataset + argument, global_batch_size=4),
        ModelConfig(model=model, model_options=OPTIONS.get(model, ())),
        TrainConfig(train_steps=2, callbacks=()),
    )


@pytest.mark.parametrize(("model", "dataset", "strategy"), CELLS)
def test_trains_and_evaluates(tmp_path, model, dataset, strategy) -> None:
    configs = _configs(model, dataset, strategy, tmp_path)
    info = importlib.import_module(f"data.{dataset}").info(configs.data)
    takes, refusal = TAKES.get(model, ANY)
    if not takes(dataset, info):
        with pytest.raises(RequestError, match=refusal):
            train.run(configs)
        return
    metrics = train.run(configs)
    assert np.isfinite(metrics["loss"])
    assert metrics["examples"] == info.num_examples["eval"]
    assert (info.task == "classification") == ("accuracy" in metrics)


@pytest.mark.parametrize("model", registry.names("model"))
def test_options_have_defaults_and_unknown_ones_are_refused(model) -> None:
    module = importlib.import_module(f"model.{model}")
    module.Options()
    config = ModelConfig(model=model, model_options=("no_such_key=1",))
    with pytest.raises(RequestError, match=r"unknown key 'no_such_key'"):
        module.build(config, None, 1)
