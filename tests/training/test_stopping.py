import itertools

import pytest

from errors import RequestError
from flags import registry
from training import stopping as stopping_lib
from training import task as task_lib


def _run(flag: str, values: list[float], name: str = "accuracy"):
    """Returns, for each value, whether it was the best; and the state."""
    stopping = stopping_lib.create(flag)
    found = []
    for value in values:
        found.append(stopping.update({"loss": 1.0, name: value}))
        if stopping.is_over():
            break
    return found, stopping


def test_more_accuracy_is_better() -> None:
    found, stopping = _run("accuracy:patience=2", [0.5, 0.6, 0.6, 0.4, 0.9])
    assert found == [True, True, False, False]
    assert stopping.is_over()
    assert stopping.best.numpy() == 0.6


@pytest.mark.parametrize("name", ["loss", "mean_squared_error"])
def test_less_loss_is_better(name) -> None:
    found, _ = _run(f"{name}:patience=3", [3.0, 2.0, 2.5, 1.0], name)
    assert found == [True, True, False, True]


# Of every model here; its layers report the last two.
MORE_IS_BETTER = {"accuracy": True, "converged": True}
LESS_IS_BETTER = dict.fromkeys(
    ["loss", "last_error", "bits_per_byte", "residual"], False
)


def test_the_better_is_known_of_every_metric_here() -> None:
    expected = MORE_IS_BETTER | LESS_IS_BETTER
    names = {"loss", "residual", "converged"}
    for task, model in itertools.product(
        ("classification", "regression"), registry.names("model")
    ):
        module = registry.load("model", model, "model")
        made = task_lib.resolve(module, task).make_metrics()
        names |= {metric.name for metric in made}
    assert names == set(expected)
    for name, more in expected.items():
        assert stopping_lib.less_is_better(name) is not more, name


def test_a_first_value_below_zero_is_the_best_so_far() -> None:
    found, _ = _run("score", [-3.0, -4.0, -2.0], "score")
    assert found == [True, False, True]


def test_without_the_flag_the_best_is_known_and_nothing_stops() -> None:
    found, stopping = _run("", [0.5, *[0.4] * 50])
    assert found == [True, *[False] * 50]
    assert not stopping.is_over()
    assert stopping.name({"loss": 1.0, "accuracy": 0.5}) == "accuracy"
    assert stopping.name({"loss": 1.0}) == "loss"


def test_state_can_be_saved() -> None:
    _, stopping = _run("accuracy", [0.5, 0.4])
    values = {k: v.numpy() for k, v in stopping.variables().items()}
    assert values == {"stopping/best": 0.5, "stopping/stale": 1}


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("accuracy:patience=0", "patience=0: must be 1 or more"),
        (
            "accuracy:patiense=3",
            "unknown key 'patiense'; allowed: mode, patience",
        ),
        ("accuracy:patience=few", "is not an integer"),
        ("accuracy:mode=less", "mode=less: must be auto, min or max"),
    ],
)
def test_refuses(flag, message) -> None:
    with pytest.raises(RequestError, match=f"--early_stopping.*{message}"):
        stopping_lib.create(flag)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("min", [True, True, False]), ("max", [True, False, True])],
)
def test_the_mode_may_be_said(mode, expected) -> None:
    found, _ = _run(f"perplexity:mode={mode}", [3.0, 2.0, 9.0], "perplexity")
    assert found == expected


@pytest.mark.parametrize("name", ["recall", "steps_per_sec"])
def test_an_unknown_metric_is_refused(name) -> None:
    stopping = stopping_lib.create(name)
    with pytest.raises(RequestError, match=rf"{name}: .*accuracy, loss"):
        stopping.check(["loss", "accuracy"])


def test_a_known_metric_or_none_passes() -> None:
    for flag in ("", "loss", "accuracy:patience=3"):
        stopping_lib.create(flag).check(["loss", "accuracy"])
