"""Errors of ours arrive as they were raised."""

import keras
import pytest
import tensorflow as tf

from errors import RequestError


class Refusing(keras.layers.Layer):
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        raise RequestError("--flag=1: one sentence.")

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        return keras.KerasTensor(inputs.shape)


def test_keras_adds_nothing_to_what_a_layer_refuses() -> None:
    inputs = keras.Input([2])
    model = keras.Model(inputs, Refusing()(inputs))
    with pytest.raises(RequestError) as info:
        model(tf.zeros([1, 2]))
    assert str(info.value) == "--flag=1: one sentence."
