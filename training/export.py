"""The trained model for others, in Keras's own formats."""

from collections.abc import Callable

import keras
import tensorflow as tf

from training import average
from training import files
from training import workers
from training.state import TrainState


def save(
    strategy: tf.distribute.Strategy,
    build: Callable[[], keras.Model],
    state: TrainState,
    model_dir: str,
    form: str,
) -> None:
    """Writes the trained weights as a model without strategy or optimizer.

    A SavedModel needs nothing of this repository to be loaded; a `.keras`
    file needs our layers to be importable.

    Args:
        strategy: Its chief writes; the others wait for it.
        build: Builds the same model once more, outside the strategy's scope.
        state: The trained model, and the averages of its weights if any.
        model_dir: Folder of the run; `export/` in it receives the model.
        form: `keras` or `saved_model`; empty writes nothing.

    Raises:
        RunError: on the chief, if it cannot be written.
    """
    if form and workers.is_chief(strategy):
        model = build()
        weights = state.model.trainable_variables
        with average.swapped_in(state.averages, weights):
            model.set_weights(state.model.get_weights())
        with files.explained("the export could not be written"):
            _write(model, tf.io.gfile.join(model_dir, "export"), form)
    # A worker that left early would look like one that died.
    workers.total(strategy, 0)


def _write(model: keras.Model, folder: str, form: str) -> None:
    tf.io.gfile.makedirs(folder)
    if form == "keras":
        model.save(tf.io.gfile.join(folder, "model.keras"))
    else:
        path = tf.io.gfile.join(folder, "saved_model")
        model.export(path, format="tf_saved_model", verbose=False)
