import keras
import numpy as np
import pytest

from errors import RequestError
from tests.training import saving
from training import TrainConfig
from training import initial_model
from training import state as state_lib


def _model(classes: int = 3, statistics: bool = False) -> keras.Model:
    inputs = keras.Input([2], name="features")
    x = keras.layers.Dense(4, name="hidden_0")(inputs)
    if statistics:
        x = keras.layers.BatchNormalization(name="hidden_norm")(x)
    x = keras.layers.Dense(4, name="hidden_1")(x)
    x = keras.layers.Dropout(0.5, name="dropout")(x)
    outputs = keras.layers.Dense(classes, name="outputs")(x)
    return keras.Model(inputs, outputs, name="small")


def _state(strategy, word="", model=_model, **config) -> state_lib.TrainState:
    with strategy.scope():
        train = TrainConfig(initial_model=word, **config)
        return state_lib.create(model(), train)


def _load(strategy, state, word: str, model_dir: str) -> None:
    config = TrainConfig(initial_model=word)
    initial_model.load(strategy, state, config, model_dir)


def _weights(model: keras.Model) -> dict[str, np.ndarray]:
    return {weight.path: weight.numpy() for weight in model.weights}


@pytest.fixture
def pretrained(tmp_path) -> tuple[str, dict[str, np.ndarray]]:
    """A file, and what is in it: of five classes."""
    keras.utils.set_random_seed(7)
    model = _model(classes=5)
    model.set_weights([np.random.rand(*w.shape) for w in model.get_weights()])
    model.save(tmp_path / "pretrained.keras")
    return str(tmp_path / "pretrained.keras"), _weights(model)


@pytest.mark.parametrize("replicas", [1, 2])
def test_takes_what_fits_and_says_what_does_not(
    strategy_of, pretrained, capsys, replicas
) -> None:
    path, expected = pretrained
    state = _state(strategy_of(replicas), path)
    new = _weights(state.model)
    _load(strategy_of(replicas), state, path, "")
    found = _weights(state.model)
    assert len(found) == 6
    for name, value in found.items():
        same = new if name.startswith("outputs/") else expected
        np.testing.assert_array_equal(value, same[name], name)
    for weight in state.model.weights:
        copies = strategy_of(replicas).experimental_local_results(weight.value)
        for copy in copies:
            np.testing.assert_array_equal(copy, found[weight.path])
    assert capsys.readouterr().out == (
        f"{path}: 4 of 6 weights taken; left as new: outputs/kernel [4, 3] "
        "against [4, 5], outputs/bias [3] against [5]\n"
    )


def test_the_average_starts_from_them(strategy_of, pretrained) -> None:
    path, expected = pretrained
    state = _state(strategy_of(2), path, ema_momentum=0.9)
    _load(strategy_of(2), state, path, "")
    names = [weight.path for weight in state.model.trainable_variables]
    averages = dict(zip(names, state.averages, strict=True))
    for name in ("hidden_0/kernel", "hidden_1/bias"):
        np.testing.assert_array_equal(averages[name].numpy(), expected[name])


def test_values_are_cast(strategy_of, pretrained) -> None:
    path, expected = pretrained
    keras.config.set_dtype_policy("float64")
    state = _state(strategy_of(1))
    _load(strategy_of(1), state, path, "")
    found = _weights(state.model)["hidden_0/kernel"]
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, expected["hidden_0/kernel"])


@pytest.mark.parametrize("ema_momentum", [None, 0.5])
def test_a_run_is_read_from_its_best_checkpoint(
    tmp_path, strategy_of, ema_momentum
) -> None:
    """What is evaluated there: the averages, if there are any."""
    strategy = strategy_of(1)
    run = _state(strategy, ema_momentum=ema_momentum)
    kernel = run.model.get_layer("hidden_0").kernel
    folder = str(tmp_path)
    for step, value in ((5, 5.0), (10, 10.0)):
        kernel.assign(np.full(kernel.shape, value))
        for average in run.averages:
            average.assign(np.full(average.shape, value + 0.5))
        if step == 5:
            best = {"step": 5, "metric": "loss", "value": 1.0}
            saving.save_best(strategy, run.variables(), folder, best)
        saving.save(strategy, run.variables(), folder, step, 9)
    fresh = _state(strategy)
    _load(strategy, fresh, folder, "")
    found = _weights(fresh.model)["hidden_0/kernel"]
    np.testing.assert_array_equal(found, 5.0 if ema_momentum is None else 5.5)


def test_a_run_without_a_best_is_read_from_its_newest(
    tmp_path, strategy_of
) -> None:
    strategy = strategy_of(1)
    run = _state(strategy)
    run.model.get_layer("hidden_0").bias.assign([1.0, 2.0, 3.0, 4.0])
    saving.save(strategy, run.variables(), str(tmp_path), 5, 9)
    fresh = _state(strategy)
    _load(strategy, fresh, str(tmp_path), "")
    found = _weights(fresh.model)["hidden_0/bias"]
    np.testing.assert_array_equal(found, [1, 2, 3, 4])


def test_a_continued_run_does_not_read_it(tmp_path, strategy_of) -> None:
    strategy = strategy_of(1)
    state = _state(strategy)
    saving.save(strategy, state.variables(), str(tmp_path), 5, 9)
    before = _weights(state.model)
    _load(strategy, state, "gone.keras", str(tmp_path))
    np.testing.assert_equal(_weights(state.model), before)


def test_frozen_layers_are_no_part_of_the_optimizer(strategy_of) -> None:
    state = _state(strategy_of(2), "a.keras:freeze=hidden_*", ema_momentum=0.9)
    names = [weight.path for weight in state.model.trainable_variables]
    assert names == ["outputs/kernel", "outputs/bias"]
    assert len(state.averages) == 2
    beside = [n for n in state.variables() if not n.startswith("model/")]
    assert any("outputs_kernel" in name for name in beside)  # slots of Adam
    assert not any("hidden" in name for name in beside)


def test_a_frozen_normalization_uses_its_statistics(strategy_of) -> None:
    def build() -> keras.Model:
        return _model(statistics=True)

    state = _state(strategy_of(1), "a.keras:freeze=*_norm", build)
    norm = state.model.get_layer("hidden_norm")
    norm.moving_mean.assign([1.0, 2.0, 3.0, 4.0])
    x = np.random.RandomState(0).rand(6, 4).astype(np.float32)
    expected = (x - [1, 2, 3, 4]) / np.sqrt(1 + norm.epsilon)
    np.testing.assert_allclose(norm(x, training=True), expected, 1e-5)
    np.testing.assert_array_equal(norm.moving_mean, [1, 2, 3, 4])


def test_layers_of_a_model_within_the_model_are_found(strategy_of) -> None:
    def build() -> keras.Model:
        inputs = keras.Input([2])
        inner = keras.Sequential(
            [
                keras.layers.Dense(2, name="deep"),
                keras.layers.Dense(2, name="deeper"),
            ],
            name="backbone",
        )
        outputs = keras.layers.Dense(1, name="outputs")(inner(inputs))
        return keras.Model(inputs, outputs)

    state = _state(strategy_of(1), "a.keras:freeze=deep", build)
    names = {w.path.split("/")[-2] for w in state.model.trainable_variables}
    assert names == {"deeper", "outputs"}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("a.keras:freeze=conv_*", r"no layer .* like 'conv_\*'; .* hidden_0"),
        ("a.keras:freeze=*", r"'\*' leaves no layer to train"),
        ("a.keras:freezes=x", "unknown key 'freezes'; allowed: freeze"),
        ("a.keras:freeze=x,y", "'y' is not key=value"),
    ],
)
def test_a_wrong_pattern_is_refused(strategy_of, word, message) -> None:
    with pytest.raises(RequestError, match=message):
        _state(strategy_of(1), word)


@pytest.mark.parametrize(
    ("word", "path", "pattern"),
    [
        ("a.keras", "a.keras", ""),
        ("gs://bucket/a.keras", "gs://bucket/a.keras", ""),
        ("gs://bucket/run:freeze=a*", "gs://bucket/run", "a*"),
        ("/a:b/model.keras", "/a:b/model.keras", ""),
        ("/a:rate=1/model.keras", "/a:rate=1/model.keras", ""),
        ("run:2", "run:2", ""),
        ("/a:b/run:2:freeze=a*", "/a:b/run:2", "a*"),
    ],
)
def test_a_path_may_have_colons(word, path, pattern) -> None:
    options = initial_model.Options(freeze=pattern)
    assert initial_model.parse(word) == (path, options)


def _other() -> keras.Model:
    inputs = keras.Input([2])
    return keras.Model(inputs, keras.layers.Dense(3, name="other")(inputs))


def test_a_file_in_which_nothing_fits_is_refused(
    strategy_of, pretrained
) -> None:
    state = _state(strategy_of(1), model=_other)
    message = r"nothing in it fits; .* other/kernel \[2, 3\].* hidden_0/bias"
    with pytest.raises(RequestError, match=message):
        _load(strategy_of(1), state, pretrained[0], "")


def test_what_is_frozen_must_be_in_the_file(strategy_of, pretrained) -> None:
    word = f"{pretrained[0]}:freeze=outputs"
    state = _state(strategy_of(1), word)
    with pytest.raises(RequestError, match=r"has no outputs/kernel \[4, 3\]"):
        _load(strategy_of(1), state, word, "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.keras", "must be a .keras file, or the folder of a run"),
        ("weights.h5", "must be a .keras file, or the folder of a run"),
        ("broken.keras", "cannot be read in safe mode"),
        ("empty", "there is no checkpoint in it"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path, strategy_of, name, message
) -> None:
    (tmp_path / "empty").mkdir()
    for file in ("weights.h5", "broken.keras"):
        (tmp_path / file).write_bytes(b"nothing")
    state = _state(strategy_of(1))
    with pytest.raises(RequestError, match=message):
        _load(strategy_of(1), state, str(tmp_path / name), "")


def test_a_damaged_checkpoint_is_refused(tmp_path, strategy_of) -> None:
    strategy = strategy_of(1)
    state = _state(strategy)
    saving.save(strategy, state.variables(), str(tmp_path), 5, 9)
    (tmp_path / "checkpoints" / "step-5.index").write_bytes(b"")
    with pytest.raises(RequestError, match="step-5 cannot be used: its index"):
        _load(strategy, state, str(tmp_path), "")
