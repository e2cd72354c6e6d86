"""What `--callbacks` may mean."""

import types

import keras
import pytest

from errors import RequestError
from training import callbacks
from training.callbacks import Context

CONTEXT = Context(None, "", True, 0, 8)


def test_a_module_makes_its_own() -> None:
    made = object()
    module = types.SimpleNamespace(make=lambda context: (context, made))
    assert callbacks.create("mine", module, CONTEXT) == (CONTEXT, made)


def test_a_class_of_keras_callbacks_will_do() -> None:
    found = keras.callbacks.TerminateOnNaN
    made = callbacks.create("keras.callbacks.TerminateOnNaN", found, CONTEXT)
    assert isinstance(made, found)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (types.SimpleNamespace(), r"mine: has no make; write a module with"),
        (dict, r"mine: is not derived from keras\.callbacks\.Callback; w"),
        (
            keras.callbacks.LearningRateScheduler,
            r"mine: cannot be made without arguments \(.*'schedule'\); write",
        ),
    ],
    ids=["module", "class", "arguments"],
)
def test_refuses_what_is_no_callback(found, message) -> None:
    with pytest.raises(RequestError, match=f"^--callbacks={message}"):
        callbacks.create("mine", found, CONTEXT)
