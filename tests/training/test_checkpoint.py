import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from training import TrainConfig
from training import checkpoint
from training import state as state_lib


def _state(strategy, units: int = 3, fill: float | None = None, name="dense"):
    with strategy.scope():
        inputs = keras.Input([2])
        layer = keras.layers.Dense(units, name=name)
        model = keras.Model(inputs, layer(inputs))
        state = state_lib.create(model, TrainConfig(optimizer="adam"))
    if fill is not None:
        for index, variable in enumerate(state.variables().values()):
            value = np.full(variable.shape, fill + index)
            variable.assign(tf.cast(value, variable.dtype))
    return state


def _values(state) -> dict[str, np.ndarray]:
    return {name: var.numpy() for name, var in state.variables().items()}


@pytest.mark.parametrize("target", [1, 2, 4])
@pytest.mark.parametrize("source", [1, 2])
def test_restores_everything_into_any_number_of_replicas(
    tmp_path, strategy_of, source, target
) -> None:
    saved = _state(strategy_of(source), fill=5)
    checkpoint.save(
        strategy_of(source), saved.variables(), str(tmp_path), 5, keep=1
    )
    keras.utils.clear_session()
    fresh = _state(strategy_of(target))
    checkpoint.restore(strategy_of(target), fresh.variables(), str(tmp_path))
    assert fresh.step.numpy() == 5
    for name, value in _values(saved).items():
        np.testing.assert_array_equal(_values(fresh)[name], value, name)


def test_a_folder_without_checkpoint_changes_nothing(
    tmp_path, strategy_of
) -> None:
    state = _state(strategy_of(1), fill=3)
    before = _values(state)
    checkpoint.restore(strategy_of(1), state.variables(), str(tmp_path))
    checkpoint.restore(
        strategy_of(1), state.variables(), str(tmp_path / "absent")
    )
    np.testing.assert_equal(_values(state), before)


def test_keeps_the_newest_and_reads_the_newest(tmp_path, strategy_of) -> None:
    strategy = strategy_of(1)
    state = _state(strategy)
    for step in (8, 9, 10, 100):
        state.step.assign(step)
        checkpoint.save(
            strategy, state.variables(), str(tmp_path), step, keep=2
        )
    assert checkpoint.list_steps(str(tmp_path)) == [10, 100]
    folder = tmp_path / "checkpoints"
    assert {path.name for path in folder.iterdir()} == {
        f"step-{step}.{part}"
        for step in (10, 100)
        for part in ("index", "data-00000-of-00001")
    }
    state.step.assign(0)
    checkpoint.restore(strategy, state.variables(), str(tmp_path))
    assert state.step.numpy() == 100


def test_the_best_replaces_a_best_of_a_later_step(
    tmp_path, strategy_of
) -> None:
    """As after a kill: steps are run again, and another one is the best."""
    strategy = strategy_of(1)
    variables = _state(strategy).variables()
    for step in (300, 100):
        best = {"step": step, "metric": "loss", "value": 1.0}
        checkpoint.save_best(strategy, variables, str(tmp_path), best)
    assert checkpoint.list_steps(str(tmp_path), checkpoint.BEST) == [100]
    assert '"step": 100' in (tmp_path / "best" / "best.json").read_text()


def test_a_damaged_checkpoint_is_named(tmp_path, strategy_of) -> None:
    strategy = strategy_of(1)
    variables = _state(strategy).variables()
    checkpoint.save(strategy, variables, str(tmp_path), 7, keep=1)
    path = tmp_path / "checkpoints" / "step-7.index"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(RequestError, match=r"step-7 cannot be read"):
        checkpoint.restore(strategy, variables, str(tmp_path))


def test_half_a_checkpoint_is_not_listed(tmp_path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "step-7.data-00000-of-00001").touch()
    (folder / "step-7.index.tempstate123").touch()
    assert checkpoint.list_steps(str(tmp_path)) == []


def test_part_of_a_state_can_be_restored(tmp_path, strategy_of) -> None:
    strategy = strategy_of(1)
    saved = _state(strategy, fill=2)
    checkpoint.save(strategy, saved.variables(), str(tmp_path), 2, keep=1)
    keras.utils.clear_session()
    fresh = _state(strategy, fill=50)
    kept = fresh.optimizer.iterations.numpy()
    checkpoint.restore(strategy, fresh.evaluated_variables(), str(tmp_path))
    assert fresh.step.numpy() == 2
    assert fresh.optimizer.iterations.numpy() == kept


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"units": 4}, r"other shapes: model/dense/bias \[3\] against \[4\]"),
        ({"name": "head"}, r"only in the checkpoint: .*dense.*; only in this"),
    ],
)
def test_refuses_what_does_not_fit(
    tmp_path, strategy_of, other, message
) -> None:
    strategy = strategy_of(1)
    saved = _state(strategy)
    checkpoint.save(strategy, saved.variables(), str(tmp_path), 2, keep=1)
    keras.utils.clear_session()
    state = _state(strategy, **other, fill=1)
    before = _values(state)
    with pytest.raises(RequestError, match=message):
        checkpoint.restore(strategy, state.variables(), str(tmp_path))
    np.testing.assert_equal(_values(state), before)


def test_refuses_to_save_what_is_not_finite(tmp_path, strategy_of) -> None:
    strategy = strategy_of(2)
    state = _state(strategy)
    checkpoint.save(strategy, state.variables(), str(tmp_path), 1, keep=1)
    state.model.trainable_variables[0].assign(np.full([2, 3], np.nan))
    with pytest.raises(RuntimeError, match=r"model/dense/kernel.*step 2"):
        checkpoint.save(strategy, state.variables(), str(tmp_path), 2, keep=1)
    assert checkpoint.list_steps(str(tmp_path)) == [1]
