import dataclasses

import numpy as np
import pytest

import assemble
import placement
from data import DataConfig
from errors import RequestError
from flags.command_line import Configs
from model import ModelConfig
from strategies import StrategyConfig
from training import TrainConfig

TWO = StrategyConfig(strategy="mirrored", devices=("cpu:0", "cpu:1"))
CONFIGS = Configs(
    strategy=TWO,
    data=DataConfig(global_batch_size=8),
    model=ModelConfig(model="mlp", model_options=("hidden=4",)),
    train=TrainConfig(steps_per_loop=2),
)


@pytest.fixture(autouse=True)
def _placement() -> None:
    """`make_parts` says for the whole process where tensors lie."""
    yield
    placement.use(None)


def test_metrics_are_made_in_scope() -> None:
    """Outside of it each worker would report its own examples alone."""
    parts = assemble.make_parts(CONFIGS)
    extended = parts.strategy.extended
    variables = [v for m in parts.task.make_metrics() for v in m.variables]
    assert variables
    for variable in variables:
        assert extended.variable_created_in_scope(variable.value)


def test_another_batch_size_is_all_that_differs() -> None:
    parts = assemble.make_parts(CONFIGS)
    other = parts.with_batch_size(4)
    assert other.configs.data.global_batch_size == 4
    batch = next(assemble.make_iterator(other))
    features = parts.strategy.experimental_local_results(batch[0])
    assert [each.shape[0] for each in features] == [2, 2]
    same = dataclasses.replace(other, configs=parts.configs)
    assert all(
        getattr(same, field.name) is getattr(parts, field.name)
        for field in dataclasses.fields(parts)
    )


def test_training_goes_on_from_the_step_that_is_given() -> None:
    parts = assemble.make_parts(CONFIGS)

    def labels(step: int, count: int) -> np.ndarray:
        iterator = assemble.make_iterator(parts, step)
        local = parts.strategy.experimental_local_results
        return np.array(
            [
                [x.numpy() for x in local(next(iterator)[1])]
                for _ in range(count)
            ]
        )

    np.testing.assert_array_equal(labels(0, 4)[2:], labels(2, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": DataConfig(global_batch_size=7)}, "--global_batch_size=7"),
        (
            {"train": TrainConfig(early_stopping="nothing")},
            "--early_stopping=nothing",
        ),
    ],
    ids=["batch", "stopping"],
)
def test_refuses(changes, message) -> None:
    with pytest.raises(RequestError, match=message):
        assemble.make_parts(CONFIGS._replace(**changes))
