import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data.pipeline import augment
from data.pipeline import distribute
from data.pipeline import prepare
from errors import RequestError
from tests.data.pipeline import datasets
from tests.data.pipeline import layouts

NAME = "augmentation_of.mine"
CONFIG = DataConfig(dataset="mine", global_batch_size=8, augmentation=NAME)
CONTEXT = tf.distribute.InputContext()


def _noise(
    features: tf.Tensor, labels: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds less than 1, so that a row still shows which example it was."""
    return features + tf.random.stateless_uniform([2], seed), labels


@pytest.fixture(autouse=True)
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Returns a function that sets what the user's module does."""

    def set_augment(augment: Any) -> None:
        module = types.ModuleType(NAME)
        if augment:
            vars(module)["augment"] = augment
        monkeypatch.setitem(sys.modules, NAME, module)

    set_augment(_noise)
    return set_augment


def _train(
    module: Any, config: DataConfig = CONFIG, seed: int = 5, step: int = 0
) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    return functools.partial(
        prepare.train_dataset, module, config, seed=seed, step=step
    )


def _features(make: Any, num_steps: int, replicas: int = 1) -> np.ndarray:
    """Returns the features of all rows, `[steps * G, 2]`."""
    batches = layouts.global_batches(make, 1, replicas, num_steps)
    return np.concatenate([features for features, _, _ in batches])


@pytest.mark.parametrize("kind", ["arrays", "example", "source"])
@pytest.mark.parametrize(
    ("num_workers", "num_replicas"), [(1, 4), (2, 2), (2, 4)]
)
def test_numbers_do_not_depend_on_the_layout(
    kind: str, num_workers: int, num_replicas: int
) -> None:
    make = _train(datasets.make(kind, 18), step=1)

    batches = layouts.global_batches(make, num_workers, num_replicas, 3)

    expected = make(CONTEXT).take(3).as_numpy_iterator()
    for batch, one_device in zip(batches, expected, strict=True):
        for received, right in zip(batch, one_device, strict=True):
            np.testing.assert_array_equal(received, right)
        np.testing.assert_array_equal(
            np.floor(batch[0]), np.stack([batch[1], batch[1]], 1)
        )


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_numbers_reach_the_replicas(
    strategy_of: Callable[[int], tf.distribute.Strategy], replicas: int
) -> None:
    module, strategy = datasets.make("arrays", 18), strategy_of(replicas)

    dataset = distribute.train_dataset(strategy, module, CONFIG, seed=5, step=0)

    (features, *_) = next(iter(dataset))
    parts = strategy.experimental_local_results(features)
    rows = np.stack(parts, 1).reshape(8, 2)
    np.testing.assert_array_equal(rows, _features(_train(module), 1))


@pytest.mark.parametrize("kind", ["arrays", "source"])
def test_starting_at_a_step_equals_a_straight_run(kind: str) -> None:
    module = datasets.make(kind, 18)
    straight = _features(_train(module), 7, replicas=2)

    for step in (1, 5):
        later = _features(_train(module, step=step), 2, replicas=2)

        np.testing.assert_array_equal(later, straight[8 * step : 8 * step + 16])


def test_each_row_of_each_epoch_has_numbers_of_its_own() -> None:
    module = datasets.make("arrays", 8)

    rows = _features(_train(module), 4)
    others = _features(_train(module, seed=6), 4)

    noise = np.concatenate([rows, others]) % 1
    assert len(np.unique(noise[:, 0])) > 60
    assert 0.4 < noise.mean() < 0.6


def test_evaluation_is_not_augmented() -> None:
    module = datasets.make("arrays", 8, 8)

    (batch,) = prepare.eval_dataset(module, CONFIG, CONTEXT)

    np.testing.assert_array_equal(batch[0][:, 0], range(8))


def test_rows_that_could_not_be_read_stay_zeros() -> None:
    config = DataConfig(
        global_batch_size=8, augmentation=NAME, skip_bad_examples=9
    )
    module = datasets.make("example", 18, bad=(3, 4))

    batches = layouts.global_batches(_train(module, config), 1, 2, 9)

    good = layouts.global_batches(_train(datasets.make("example", 18)), 1, 2, 9)
    for received, right in zip(batches, good, strict=True):
        kept = ~np.isin(right[1], (3, 4))
        np.testing.assert_array_equal(received[2], kept)
        np.testing.assert_array_equal(received[0], right[0] * kept[:, None])


def test_labels_may_change_and_weights_stay(use) -> None:
    use(lambda features, labels, seed: (features, labels + 100))

    features, labels, weights = next(
        iter(_train(datasets.make("arrays", 18))(CONTEXT))
    )

    np.testing.assert_array_equal(labels, features[:, 0] + 100)
    np.testing.assert_array_equal(weights, np.ones(8))


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (lambda x, y, s: (x[:1], y), "must keep structure, shapes"),
        (lambda x, y, s: (tf.cast(x, tf.float64), y), "must keep structure"),
        (lambda x, y, s: x, "must keep structure"),
        (None, "no function augment"),
    ],
    ids=["shape", "dtype", "structure", "nothing"],
)
def test_refused_before_anything_is_read(
    use, augment: Any, message: str
) -> None:
    use(augment)

    with pytest.raises(
        RequestError, match=f"--augmentation={NAME}: .*{message}"
    ):
        prepare.element_spec(datasets.make("arrays", 8), CONFIG)


def test_a_refusal_of_the_dataset_arrives_as_it_is() -> None:
    config = DataConfig(dataset="mine", augmentation="flip_and_shift")
    info = datasets.make("arrays", 8).info(config)

    with pytest.raises(
        RequestError, match=r"^--augmentation=flip_and_shift: n"
    ):
        augment.load(config, info)


def test_any_other_error_of_the_module_stays(use) -> None:
    def fail(features: Any, labels: Any, seed: Any) -> Any:
        raise ValueError("mine")

    use(fail)

    with pytest.raises(ValueError, match="mine"):
        augment.load(CONFIG, datasets.make("arrays", 8).info(CONFIG))


def test_the_module_may_use_python_conditions(use) -> None:
    def odd_only(
        features: tf.Tensor, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if features[0] % 2 == 1:
            features += 0.5
        return features, labels

    use(odd_only)

    rows = _features(_train(datasets.make("arrays", 8)), 1)

    assert sorted(rows[:, 0]) == [0, 1.5, 2, 3.5, 4, 5.5, 6, 7.5]


def test_a_shape_that_is_hidden_ends_the_reading(use) -> None:
    use(
        lambda x, y, s: (
            tf.py_function(lambda x: x[:1], [x], tf.float32),
            y,
        )
    )

    batches = _train(datasets.make("arrays", 8))(CONTEXT)

    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        next(iter(batches))


def test_refuses_what_cannot_be_imported() -> None:
    config = DataConfig(augmentation="data.no_such_module")

    with pytest.raises(RequestError, match=r"no module 'data.no_such"):
        prepare.element_spec(datasets.make("arrays", 8), config)


def test_an_error_inside_the_module_passes_through(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package_of_mine"
    package.mkdir()
    (package / "needs_more.py").write_text("import no_such_thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = DataConfig(augmentation="package_of_mine.needs_more")

    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        prepare.element_spec(datasets.make("arrays", 8), config)
