import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from tests.training import saving
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
    saving.save(
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
    for folder in (tmp_path, tmp_path / "absent"):
        restored = checkpoint.restore(
            strategy_of(1), state.variables(), str(folder)
        )
        assert restored is None
    np.testing.assert_equal(_values(state), before)


def test_keeps_the_newest_and_reads_the_newest(tmp_path, strategy_of) -> None:
    strategy = strategy_of(1)
    state = _state(strategy)
    for step in (8, 9, 10, 100):
        state.step.assign(step)
        saving.save(strategy, state.variables(), str(tmp_path), step, keep=2)
    assert checkpoint.list_steps(str(tmp_path)) == [10, 100]
    folder = tmp_path / "checkpoints"
    assert {path.name for path in folder.iterdir()} == {
        f"step-{step}.{part}"
        for step in (10, 100)
        for part in ("json", "index", "data-00000-of-00001")
    }
    state.step.assign(0)
    checkpoint.restore(strategy, state.variables(), str(tmp_path))
    assert state.step.numpy() == 100


def test_what_others_leave_there_is_ignored(tmp_path, strategy_of) -> None:
    strategy = strategy_of(1)
    state = _state(strategy)
    saving.save(strategy, state.variables(), str(tmp_path), 7, keep=1)
    folder = tmp_path / "checkpoints"
    for name in (
        "step-9.index",
        "step-9.json.bak",
        "step-x.json",
        "checkpoint",
    ):
        (folder / name).touch()
    assert checkpoint.restore(strategy, state.variables(), str(tmp_path)) == 7


def test_reads_the_best_or_a_given_step(tmp_path, strategy_of) -> None:
    strategy = strategy_of(2)
    state = _state(strategy)
    folder = str(tmp_path)
    for step in (5, 6):
        state.step.assign(step)
        saving.save(strategy, state.variables(), folder, step, keep=2)
    state.step.assign(4)
    best = {"step": 4, "metric": "loss", "value": 1.0}
    saving.save_best(strategy, state.variables(), folder, best)
    for which, step in ((checkpoint.BEST, 4), (5, 5), (6, 6)):
        assert step == checkpoint.restore(
            strategy, state.variables(), folder, which
        )
        assert state.step.numpy() == step


def test_best_is_what_best_json_says(tmp_path, strategy_of) -> None:
    """A run killed before it wrote that leaves two there."""
    strategy = strategy_of(1)
    state = _state(strategy)
    for step in (3, 4):
        state.step.assign(step)
        saving.save(strategy, state.variables(), str(tmp_path), step, 2)
    (tmp_path / "checkpoints").rename(tmp_path / "best")
    (tmp_path / "best" / "best.json").write_text('{"step": 3}')
    assert 3 == checkpoint.restore(
        strategy, state.variables(), str(tmp_path), checkpoint.BEST
    )


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (checkpoint.BEST, r"best\.json does not say .* the best; .* has 4, 5"),
        (6, r"has no checkpoint 6; it has 4, 5\."),
        (("best", 4), r"has no checkpoint best/step-4; it has 4, 5\."),
        (5, "step-5 cannot be used: its data has 10 bytes"),
    ],
)
def test_what_is_asked_for_must_be_there_and_whole(
    tmp_path, strategy_of, which, message
) -> None:
    strategy = strategy_of(1)
    variables = _state(strategy).variables()
    for step in (4, 5):
        saving.save(strategy, variables, str(tmp_path), step, keep=2)
    path = tmp_path / "checkpoints" / "step-5.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(RequestError, match=message):
        checkpoint.restore(strategy, variables, str(tmp_path), which)


def test_a_read_that_fails_is_a_refusal(
    tmp_path, strategy_of, monkeypatch
) -> None:
    strategy = strategy_of(1)
    variables = _state(strategy).variables()
    saving.save(strategy, variables, str(tmp_path), 5, keep=1)

    def load_checkpoint(path: str) -> None:
        raise tf.errors.UnavailableError(None, None, "gone")

    monkeypatch.setattr(tf.train, "load_checkpoint", load_checkpoint)
    with pytest.raises(RequestError, match=r"step-5 cannot be read \(gone\)"):
        checkpoint.restore(strategy, variables, str(tmp_path))


def test_names_are_the_keys_for_any_reader(tmp_path, strategy_of) -> None:
    strategy = strategy_of(2)
    state = _state(strategy, fill=3)
    saving.save(strategy, state.variables(), str(tmp_path), 3, keep=1)
    reader = tf.train.load_checkpoint(tmp_path / "checkpoints" / "step-3")
    assert reader.get_variable_to_shape_map().keys() == _values(state).keys()
    for name, value in _values(state).items():
        np.testing.assert_array_equal(reader.get_tensor(name), value, name)


def test_part_of_a_state_can_be_restored(tmp_path, strategy_of) -> None:
    strategy = strategy_of(1)
    saved = _state(strategy, fill=2)
    saving.save(strategy, saved.variables(), str(tmp_path), 2, keep=1)
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
    keras.utils.clear_session()
    state = _state(strategy, **other, fill=1)
    # The one before would fit.
    saving.save(strategy, state.variables(), str(tmp_path), 1, keep=2)
    keras.utils.clear_session()
    saved = _state(strategy)
    saving.save(strategy, saved.variables(), str(tmp_path), 2, keep=2)
    before = _values(state)
    with pytest.raises(RequestError, match=message):
        checkpoint.restore(strategy, state.variables(), str(tmp_path))
    np.testing.assert_equal(_values(state), before)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("newest", ("runs/a", checkpoint.NEWEST)),
        ("best", ("runs/a", checkpoint.BEST)),
        ("500", ("runs/a", 500)),
        ("gs://b/run/best/step-7", ("gs://b/run", ("best", 7))),
        ("checkpoints/step-7.index", (".", ("checkpoints", 7))),
        (
            "/x/checkpoints/step-7.data-00000-of-00001",
            ("/x", ("checkpoints", 7)),
        ),
    ],
)
def test_a_word_says_which_checkpoint(word, expected) -> None:
    assert checkpoint.find("runs/a", word) == expected


@pytest.mark.parametrize("which", [5, ("best", 5), checkpoint.BEST])
def test_the_best_is_found_when_others_of_its_time_are_gone(
    tmp_path, strategy_of, which
) -> None:
    strategy = strategy_of(1)
    state = _state(strategy, fill=3)
    best = {"step": 5, "metric": "loss", "value": 1.0}
    saving.save_best(strategy, state.variables(), str(tmp_path), best)
    saving.save(strategy, _state(strategy).variables(), str(tmp_path), 9, 1)
    fresh = _state(strategy)
    variables = fresh.evaluated_variables()
    assert checkpoint.restore(strategy, variables, str(tmp_path), which) == 5
    for name in variables:
        np.testing.assert_array_equal(
            variables[name], state.variables()[name], name
        )
    with pytest.raises(RequestError, match=r"it has 9, best \(step 5\)\."):
        checkpoint.restore(strategy, variables, str(tmp_path), 7)
