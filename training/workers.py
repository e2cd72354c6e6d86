"""What several processes must agree on.

Each worker of a `MultiWorkerMirroredStrategy` is a process with a life of its
own. Only the chief reads and writes `model_dir`; what it read reaches the
others through the functions here, as collective operations in which every
worker takes part. With one worker they return at once.
"""

import collections
import contextlib
import functools
import json
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from errors import RequestError

_LOCAL = (
    "model_dir",
    "data_dir",
    "devices",
    "intra_op_threads",
    "inter_op_threads",
)


def count(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of worker processes."""
    # A multi-worker strategy lists the devices of its own process only.
    local = len(strategy.extended.worker_devices)
    return strategy.num_replicas_in_sync // local


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process keeps files and prints."""
    return bool(strategy.extended.should_checkpoint)


def task_name(strategy: tf.distribute.Strategy) -> str:
    """Returns `worker-2`, for what a worker that is not chief keeps."""
    return f"worker-{strategy.cluster_resolver.task_id}"


def total(strategy: tf.distribute.Strategy, value: int) -> int:
    """Returns the sum over all workers of each one's `value`."""
    if count(strategy) == 1:
        return value
    return int(_sum(strategy, np.array([value], np.int64))[0])


def broadcast(strategy: tf.distribute.Strategy, payload: bytes) -> bytes:
    """Returns the chief's `payload` on every worker, bit for bit.

    Args:
        strategy: The strategy whose workers take part.
        payload: On the chief the value to send; ignored on the others.
    """
    if count(strategy) == 1:
        return payload
    size = total(strategy, len(payload) if is_chief(strategy) else 0)
    if not size:
        return b""  # reducing an empty tensor crashes TensorFlow 2.21
    # Sums of integers with zeros are exact; every collective knows int64.
    words = np.zeros(-(-size // 8), np.int64)
    if is_chief(strategy):
        words.view(np.uint8)[:size] = np.frombuffer(payload, np.uint8)
    return _sum(strategy, words).tobytes()[:size]


def broadcast_values(
    strategy: tf.distribute.Strategy,
    specs: Mapping[str, tf.TensorSpec],
    values: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Returns the chief's `values` on every worker, bit for bit.

    Args:
        strategy: The strategy whose workers take part.
        specs: Shape and dtype of each value, the same on every worker.
        values: On the chief the values to send; ignored on the others.
    """
    if count(strategy) == 1:
        return dict(values)
    received = {}
    for name, spec in specs.items():  # one at a time bounds the memory
        own = values[name].tobytes() if is_chief(strategy) else b""
        array = np.frombuffer(
            broadcast(strategy, own), spec.dtype.as_numpy_dtype
        )
        received[name] = array.reshape(spec.shape)
    return received


def raise_together(
    strategy: tf.distribute.Strategy, error: RequestError | None
) -> None:
    """Raises an error on every worker if one has one.

    A worker that gave up alone would leave the others waiting for it.

    Args:
        strategy: All its workers must call this.
        error: What this worker refuses, if anything.

    Raises:
        RequestError: this worker's own, or that another one has refused.
    """
    refused = total(strategy, int(error is not None))
    if error:
        raise error
    if refused:
        raise RequestError("another worker has refused to go on: see there.")


@contextlib.contextmanager
def together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turns a refusal inside into one of every worker.

    What is inside must not communicate.

    Raises:
        RequestError: as `raise_together`.
    """
    error = None
    try:
        yield
    except RequestError as refusal:
        error = refusal
    raise_together(strategy, error)


def check_same_config(
    strategy: tf.distribute.Strategy, config: Mapping[str, Mapping[str, Any]]
) -> None:
    """Refuses to go on if the workers were started with different flags.

    Args:
        strategy: The strategy whose workers take part.
        config: Group → flag → value, JSON-able. What belongs to one machine
            alone may differ: folders, devices, threads.

    Raises:
        RequestError: on every worker, if one differs from the chief.
    """
    flat = json.dumps(dict(collections.ChainMap(*map(dict, config.values()))))
    own = json.loads(flat)
    chief = json.loads(broadcast(strategy, flat.encode()))
    different = [
        name for name in own if own[name] != chief[name] and name not in _LOCAL
    ]
    if not total(strategy, len(different)):
        return
    if not different:
        raise RequestError(
            "another worker was started with other flags than this one; start "
            "all with the same command."
        )
    name = different[0]
    raise RequestError(
        f"--{name}: this worker has {own[name]!r}, the chief has "
        f"{chief[name]!r}; start all workers with the same flags."
    )


def check_same_data(
    strategy: tf.distribute.Strategy, dataset: str, info: Any
) -> None:
    """Refuses to go on if the workers have found different data.

    Args:
        strategy: The strategy whose workers take part.
        dataset: Its name, for the message.
        info: What this worker's dataset says of itself. Fields are compared
            as they print.

    Raises:
        RequestError: on every worker, if one differs from the chief.
    """
    own = {name: repr(value) for name, value in vars(info).items()}
    chief = json.loads(broadcast(strategy, json.dumps(own).encode()))
    error = None
    for name in own:
        if error is None and own[name] != chief[name]:
            index = strategy.cluster_resolver.task_id
            error = RequestError(
                f"--dataset={dataset}: worker {index} found {name}="
                f"{own[name]}, the chief {chief[name]}; give all workers the "
                "same data."
            )
    raise_together(strategy, error)


def _sum(strategy: tf.distribute.Strategy, words: np.ndarray) -> np.ndarray:
    """Sums int64 `[W]` over workers, counting each once."""
    result = strategy.run(_make_share(strategy), args=(tf.constant(words),))
    return strategy.experimental_local_results(result)[0].numpy()


# Once for each strategy: another function would be traced anew at each call.
@functools.cache
def _make_share(strategy: tf.distribute.Strategy) -> Any:
    local = len(strategy.extended.worker_devices)

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec([None], tf.int64)]
    )
    def share(words: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        first = context.replica_id_in_sync_group % local == 0
        words = tf.where(first, words, tf.zeros_like(words))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, words)

    return share
