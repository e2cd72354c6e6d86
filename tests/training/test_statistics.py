import keras
import pytest

from training import statistics


class _Wrapper(keras.layers.Layer):
    """Holds a layer in an attribute, as users' layers do."""

    def __init__(self, layer: keras.layers.Layer) -> None:
        super().__init__()
        self.inside = layer

    def call(self, inputs):
        return self.inside(inputs)


def _model(**options) -> keras.Model:
    frozen = keras.layers.Dense(4, trainable=False)
    layer = keras.layers.BatchNormalization(name="norm", **options)
    return keras.Sequential(
        [
            keras.Input([4]),
            frozen,
            _Wrapper(layer),
            keras.layers.Dropout(0.5),
            keras.Sequential([keras.layers.BatchNormalization(name="deep")]),
        ]
    )


def test_finds_moving_statistics_wherever_they_are() -> None:
    """Neither frozen weights nor seeds are among them."""
    paths = [v.path for v in statistics.statistics_of(_model())]
    names = sorted("/".join(path.split("/")[-2:]) for path in paths)
    assert names == [
        "deep/moving_mean",
        "deep/moving_variance",
        "norm/moving_mean",
        "norm/moving_variance",
    ]


def test_layers_that_synchronize_by_themselves_are_among_them() -> None:
    """A skipped step must take back what their forward pass has written."""
    assert len(statistics.statistics_of(_model(synchronized=True))) == 4


@pytest.mark.parametrize("synchronized", [True, False])
def test_knows_who_talks_in_the_forward_pass(synchronized) -> None:
    model = _model(synchronized=synchronized)
    assert statistics.communicates(model) is synchronized
