"""Errors of ours arrive as they were raised."""

import keras
import pytest
import tensorflow as tf

import train
from errors import Interrupted
from errors import RequestError
from errors import missing_is_wrong
from errors import say
from tests import terminal


class Refusing(keras.layers.Layer):
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        raise RequestError("--flag=1: one sentence.")

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        return keras.KerasTensor(inputs.shape)


@pytest.mark.parametrize("missing", ["mine", "mine.data"])
def test_a_missing_module_is_a_wrong_request(missing) -> None:
    with (
        pytest.raises(RequestError, match=f"--flag=1: .* '{missing}'; run"),
        missing_is_wrong("mine.data", "--flag=1"),
    ):
        raise ModuleNotFoundError(name=missing)


def test_what_a_module_misses_itself_passes_through() -> None:
    with (
        pytest.raises(ModuleNotFoundError),
        missing_is_wrong("mine.data", "--flag=1"),
    ):
        raise ModuleNotFoundError(name="scipy")


def test_keras_adds_nothing_to_what_a_layer_refuses() -> None:
    inputs = keras.Input([2])
    model = keras.Model(inputs, Refusing()(inputs))
    with pytest.raises(RequestError) as info:
        model(tf.zeros([1, 2]))
    assert str(info.value) == "--flag=1: one sentence."


def test_a_line_takes_the_place_of_a_live_one(monkeypatch, capsys) -> None:
    with terminal.opened() as screen:
        say("a")
        assert train._say(42, Interrupted("b")) == 42
        assert screen.read() == "\r\x1b[Ka\r\n\r\x1b[Ktrain.py: b\r\n"
        monkeypatch.setenv("TERM", "dumb")
        say("c")
        assert screen.read() == "c\r\n"
    say("d")
    assert capsys.readouterr().err == "d\n"
