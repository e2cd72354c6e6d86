"""The trained model for others: `.keras`, SavedModel, ONNX.

    export/model.keras   weights and layers; needs our layers to be importable
    export/saved_model   a graph that needs nothing of this repository; its
                         signature `serving_default` takes the features by name
    export/model.onnx    the same for ONNX Runtime; needs the extra `onnx`

All take a batch of any size.
"""

import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from errors import RequestError
from training import average
from training import exported
from training import files
from training import runtime
from training import workers
from training.state import TrainState

_HINTS = {
    "keras": "register your layers with "
    "keras.saving.register_keras_serializable, take no Lambda",
    "saved_model": "let `build` return a model that was called",
    "onnx": "export saved_model",
}


def check(
    strategy: tf.distribute.Strategy,
    build: Callable[[], keras.Model],
    forms: Sequence[str],
) -> None:
    """Refuses a form in which the model cannot be written.

    It writes the untrained model into a temporary folder: only that shows
    what a user's own layers can do. Better now than after the training.

    Args:
        strategy: All its workers must call this; the chief tries.
        build: Builds the model, outside the strategy's scope.
        forms: Each `keras`, `saved_model` or `onnx`.

    Raises:
        RequestError: on every worker, naming the form and the reason.
        RunError: if there is no room for temporary files.
    """
    with workers.together(strategy):
        if not forms or not workers.is_chief(strategy):
            return
        if "onnx" in forms:
            _check_onnx()
        model = build()
        for form in forms:
            with (
                files.explained("the export could not be tried"),
                tempfile.TemporaryDirectory() as folder,
            ):
                _try(model, folder, form)


def save(
    strategy: tf.distribute.Strategy,
    build: Callable[[], keras.Model],
    state: TrainState,
    model_dir: str,
    forms: Sequence[str],
) -> None:
    """Writes the trained weights as a model without strategy or optimizer.

    Args:
        strategy: Its chief writes; the others wait for it.
        build: Builds the same model once more, outside the strategy's scope.
        state: The trained model, and the averages of its weights if any.
        model_dir: Folder of the run; `export/` in it receives the model.
        forms: As for `check`; none writes nothing.

    Raises:
        RunError: on the chief, if it cannot be written.
    """
    if forms and workers.is_chief(strategy):
        # Layers without a name of their own are to get the trained ones'.
        runtime.restart_names()
        model = build()
        weights = state.model.trainable_variables
        with average.swapped_in(state.averages, weights):
            model.set_weights(state.model.get_weights())
        for form in forms:
            with files.explained("the export could not be written"):
                _write(model, tf.io.gfile.join(model_dir, "export"), form)
    # A worker that left early would look like one that died.
    workers.total(strategy, 0)


def _check_onnx() -> None:
    missing = [
        name
        for name in ("onnx", "tf2onnx")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise RequestError(
            f"--export=onnx: {' and '.join(missing)} cannot be imported; "
            "install the extra `onnx`, as in pip install -e '.[cpu,onnx]'."
        )
    policy = keras.config.dtype_policy().name
    if policy == "mixed_bfloat16":
        # What tf2onnx writes then, ONNX Runtime refuses to load.
        raise RequestError(
            "--export=onnx: not with --dtype_policy=mixed_bfloat16; choose "
            "another policy, or export saved_model."
        )


def _try(model: keras.Model, folder: str, form: str) -> None:
    try:
        _write(model, folder, form)
        if form == "keras":
            path = tf.io.gfile.join(folder, "model.keras")
            keras.saving.load_model(path, safe_mode=True)
    except OSError:
        raise
    # A user's layers may raise anything.
    except Exception as error:
        raise RequestError(
            f"--export={form}: {model.name} cannot be written so that it can "
            f"be read again: {exported.reason(error)}; {_HINTS[form]}."
        ) from error


def _write(model: keras.Model, folder: str, form: str) -> None:
    tf.io.gfile.makedirs(folder)
    if form == "keras":
        model.save(tf.io.gfile.join(folder, "model.keras"))
    elif form == "saved_model":
        path = tf.io.gfile.join(folder, "saved_model")
        model.export(path, format="tf_saved_model", verbose=False)
    else:
        _write_onnx(model, tf.io.gfile.join(folder, "model.onnx"))


def _write_onnx(model: keras.Model, path: str) -> None:
    import onnx

    # It tells of each counter of a layer that it leaves out. It also tells of
    # what it does not know, and writes that all the same: the checker refuses.
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Keras 3.15 asks NumPy for a name that it has no longer.
        warnings.filterwarnings("ignore", ".*np.object", FutureWarning)
        written = f"{folder}/model.onnx"
        signature = _signature(model)
        model.export(
            written, format="onnx", verbose=False, input_signature=signature
        )
        onnx.checker.check_model(written)
        # The converter knows plain files only, `path` may be in a bucket.
        tf.io.gfile.copy(written, path, overwrite=True)


def _signature(model: keras.Model) -> Any:
    """Returns the specs of the inputs, by which ONNX names them.

    Keras finds those of a model that was called on data by itself.
    """
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return None

    def spec(tensor: keras.KerasTensor) -> keras.InputSpec:
        return keras.InputSpec(
            dtype=tensor.dtype, shape=tensor.shape, name=tensor.name
        )

    # Only the first knows names of a dict; a Sequential has the second alone.
    structure = getattr(model, "input", inputs[0])
    return [keras.tree.map_structure(spec, structure)]
