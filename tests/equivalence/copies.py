"""Callback: what the replicas of this worker hold when a run has ended."""

import hashlib
import json
import os
from pathlib import Path

import keras
import tensorflow as tf

from training.callbacks import Context


def make(context: Context) -> keras.callbacks.Callback:
    """Returns a callback that writes `copies-<worker>.json`: name → hashes.

    One hash for each of the worker's replicas, bit for bit.
    """
    return _Copies(context)


class _Copies(keras.callbacks.Callback):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        hashes = {
            name: [_hash(copy) for copy in _local_copies(variable)]
            for name, variable in self._context.state.variables().items()
        }
        cluster = json.loads(os.environ.get("TF_CONFIG", "{}"))
        worker = cluster.get("task", {}).get("index", 0)
        path = Path(self._context.model_dir) / f"copies-{worker}.json"
        path.write_text(json.dumps(hashes))


def _local_copies(variable: tf.Variable) -> tuple[tf.Variable, ...]:
    if isinstance(variable, tf.distribute.DistributedValues):
        return variable.values
    return (variable,)


def _hash(copy: tf.Variable) -> str:
    return hashlib.sha256(copy.numpy().tobytes()).hexdigest()
