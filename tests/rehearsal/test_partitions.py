"""The real step, partitioned: the same numbers for every way to cut it."""

import pytest

import rehearse
from data import DataConfig
from data import digits
from data.pipeline import prepare
from flags.command_line import Configs
from model import ModelConfig
from rehearsal.compare import Checked
from strategies import StrategyConfig
from strategies.placement.layout import Layout
from training import RunConfig
from training import TrainConfig

# Parts of an image → cores of a replica.
PARTITIONS = {
    "1x2": ((1, 1, 2, 1), (2, 1, 1, 1)),
    "2x2": ((1, 2, 2, 1), (2, 2, 1, 1)),
    "1x4": ((1, 1, 4, 1), (2, 2, 1, 1)),
    "4x2": ((1, 4, 2, 1), (2, 4, 1, 1)),
}
# Two replicas of eight cores are more threads than most machines have.
REPLICAS = {"1x2": 2, "2x2": 2, "1x4": 2, "4x2": 1}


def check(
    name: str, model: ModelConfig, batch_size: int = 16, steps: int = 5
) -> Checked:
    partition, shape = PARTITIONS[name]
    configs = Configs(
        run=RunConfig(rehearse_steps=steps),
        strategy=StrategyConfig(
            strategy="tpu",
            computation_shape=shape,
            partition_dimensions=partition,
        ),
        data=DataConfig(global_batch_size=batch_size),
        model=model,
        train=TrainConfig(optimizer="sgd", global_clipnorm=1.0),
    )
    spec = prepare.element_spec(digits, configs.data)
    make_step = rehearse._make_make_step(
        configs, spec, digits.info(configs.data)
    )
    devices = shape[0] * shape[1]
    way = Layout("v5e", 1, REPLICAS[name], devices)
    checked = rehearse._compare(make_step, digits, spec, configs, way)
    assert (checked.replicas, checked.devices) == (REPLICAS[name], devices)
    checked.verify()
    return checked


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize(
    "model",
    [
        ModelConfig(model="cnn"),
        ModelConfig(model="equilibrium", model_options=("groups=8",)),
    ],
    ids=["cnn", "equilibrium"],
)
def test_loss_and_weights_are_those_of_one_device(
    name: str, model: ModelConfig
) -> None:
    checked = check(name, model)
    assert checked.loss_difference < 1e-4
    assert checked.weight_difference < 1e-4
    kinds = {each["kind"] for each in checked.collectives}
    assert "collective-permute" in kinds


def test_random_layers_draw_the_same_numbers() -> None:
    model = ModelConfig(model="cnn", model_options=("dropout=0.5",))
    partition, shape = PARTITIONS["1x2"]
    configs = Configs(
        strategy=StrategyConfig(
            strategy="tpu",
            computation_shape=shape,
            partition_dimensions=partition,
        ),
        data=DataConfig(global_batch_size=16),
        model=model,
        train=TrainConfig(optimizer="sgd"),
    )
    spec = prepare.element_spec(digits, configs.data)
    make_step = rehearse._make_make_step(
        configs, spec, digits.info(configs.data)
    )
    checked = rehearse._compare(
        make_step, digits, spec, configs, Layout("v5e", 1, 2, 2)
    )
    # Two replicas draw what one device does not.
    assert checked.replicas == 1
    checked.verify()


@pytest.mark.slow
def test_a_large_model_in_float64() -> None:
    model = ModelConfig(
        model="keras_application",
        model_options=("name=ResNet50", "resize=64"),
        dtype_policy="float64",
    )
    checked = check("4x2", model, batch_size=4, steps=2)
    assert checked.loss_difference < 1e-8
    assert checked.weight_difference < 1e-6
