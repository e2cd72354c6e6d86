import keras
import numpy as np
import pytest
import tensorflow as tf

from training import export


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
        trained.optimizer = keras.optimizers.Adam()
    features = np.random.RandomState(0).rand(5, 2).astype(np.float32)
    expected = features @ trained.get_weights()[0] + trained.get_weights()[1]
    export.save(strategy, _build, trained, str(tmp_path), form)
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
    export.save(strategy_of(1), _build, _build(), str(tmp_path), "")
    assert not list(tmp_path.iterdir())
