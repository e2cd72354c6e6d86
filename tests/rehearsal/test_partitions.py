"""The real step, partitioned: the same numbers for every way to cut it."""

import functools

import keras
import pytest

import rehearse
from data import DataConfig
from data import digits
from data.pipeline import prepare
from flags.command_line import Configs
from model import ModelConfig
from model import cnn
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


def check(
    name: str,
    model: ModelConfig,
    batch_size: int = 16,
    steps: int = 5,
    replicas: int = 2,
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
    info = digits.info(configs.data)
    make_step = functools.partial(rehearse._make_step, configs, spec, info)
    devices = shape[0] * shape[1]
    way = Layout("v5e", 1, replicas, devices)
    checked = rehearse._compare(make_step, digits, spec, configs, way)
    assert checked.devices == devices
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
    assert checked.replicas == 2
    assert checked.loss_difference < 1e-4
    assert checked.weight_difference < 1e-4
    kinds = {each["kind"] for each in checked.collectives}
    assert "collective-permute" in kinds


def test_random_layers_draw_the_same_numbers() -> None:
    model = ModelConfig(model="cnn", model_options=("dropout=0.5",))
    # What two replicas draw, one device does not.
    assert check("1x2", model).replicas == 1


def test_statistics_of_a_batch_are_those_of_two_replicas(monkeypatch) -> None:
    def build(config, element_spec, num_outputs: int) -> keras.Model:
        inputs = keras.Input([8, 8, 1], name="features")
        x = keras.layers.Conv2D(8, 3, use_bias=False, name="conv")(inputs)
        x = keras.layers.BatchNormalization(name="normalization")(x)
        x = keras.layers.Flatten(name="flat")(x)
        x = keras.layers.Dense(num_outputs, name="outputs")(x)
        return keras.Model(inputs, x, name="normalized")

    monkeypatch.setattr(cnn, "build", build)
    assert check("1x2", ModelConfig(model="cnn")).replicas == 2


RESNET = ModelConfig(
    model="keras_application",
    model_options=("name=ResNet50", "resize=64"),
    dtype_policy="float64",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "replicas"),
    [("1x2", 1), ("1x2", 2), ("2x2", 1), ("1x4", 1), ("4x2", 1)],
)
def test_a_large_model_in_float64(name: str, replicas: int) -> None:
    checked = check(
        name, RESNET, batch_size=4 * replicas, steps=2, replicas=replicas
    )
    assert checked.replicas == replicas
    assert checked.loss_difference < 1e-8
    assert checked.weight_difference < 1e-6
