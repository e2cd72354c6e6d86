"""The least that trains: what a run of `train.py` takes longer than is ours.

Run as a script, with the number of examples. It says so when the first step
is done, and goes on.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

examples = int(sys.argv[1])
random = np.random.default_rng(0)
features = random.standard_normal((examples, 28, 28, 1), np.float32)
labels = random.integers(10, size=examples, dtype=np.int32)
batches = (
    tf.data.Dataset.from_tensor_slices((features, labels))
    .shuffle(examples)
    .batch(64, drop_remainder=True)
    .prefetch(tf.data.AUTOTUNE)
    .repeat()
)
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10),
    ]
)
model.compile(
    "adam",
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
tell = keras.callbacks.LambdaCallback(
    on_train_batch_end=lambda batch, logs: print(
        f"told {batch + 1} 0", flush=True
    )
)
model.fit(batches, steps_per_epoch=1000, verbose=0, callbacks=[tell])
