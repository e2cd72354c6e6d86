"""`<model_dir>/metrics.csv`: what a spreadsheet reads.

python train.py --callbacks=progress,summaries,table
"""

import os

import keras

from training.callbacks import Context


def make(context: Context) -> keras.callbacks.Callback:
    """Returns Keras's own logger; a row for each evaluation, on the chief."""
    if not context.is_chief:
        return keras.callbacks.Callback()
    path = os.path.join(context.model_dir, "metrics.csv")
    return keras.callbacks.CSVLogger(path, append=context.start_step > 0)
