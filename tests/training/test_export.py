import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RunError
from training import TrainConfig
from training import export
from training import state as state_lib


def _build() -> keras.Model:
    inputs = keras.Input([2], name="features")
    return keras.Model(inputs, keras.layers.Dense(3, name="dense")(inputs))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("form", ["keras", "saved_model"])
def test_gives_the_same_predictions(
    tmp_path, strategy_of, replicas, form
) -> None:
    strategy = strategy_of(replicas)
    with strategy.scope():
        trained = _build()
        state = state_lib.create(trained, TrainConfig())
    features = np.random.RandomState(0).rand(5, 2).astype(np.float32)
    expected = features @ trained.get_weights()[0] + trained.get_weights()[1]
    export.save(strategy, _build, state, str(tmp_path), form)
    if form == "keras":
        loaded = keras.saving.load_model(tmp_path / "export" / "model.keras")
        received = loaded(features)
        assert getattr(loaded, "optimizer", None) is None
    else:
        path = str(tmp_path / "export" / "saved_model")
        loaded = tf.saved_model.load(path)
        received = loaded.serve(features)
    np.testing.assert_allclose(received, expected, atol=1e-6)


def test_writes_nothing_unless_asked(tmp_path, strategy_of) -> None:
    export.save(strategy_of(1), _build, None, str(tmp_path), "")
    assert not list(tmp_path.iterdir())


def test_the_average_is_what_is_exported(tmp_path, strategy_of) -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        state = state_lib.create(_build(), TrainConfig(ema_momentum=0.5))
    for variable, average in zip(
        state.model.trainable_variables, state.averages, strict=True
    ):
        average.assign(tf.fill(average.shape, 7.0))
        variable.assign(tf.fill(variable.shape, 3.0))
    export.save(strategy, _build, state, str(tmp_path), "keras")
    loaded = keras.saving.load_model(tmp_path / "export" / "model.keras")
    for value in loaded.get_weights():
        np.testing.assert_array_equal(value, 7.0)
    for value in state.model.get_weights():
        np.testing.assert_array_equal(value, 3.0)


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path, strategy_of
) -> None:
    with strategy_of(1).scope():
        state = state_lib.create(_build(), TrainConfig())
    (tmp_path / "export").write_text("in the way")
    with pytest.raises(RunError, match=r"^the export could not be written: "):
        export.save(strategy_of(1), _build, state, str(tmp_path), "keras")
