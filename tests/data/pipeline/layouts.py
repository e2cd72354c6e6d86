"""Workers and replicas in one process: what each is given, put together."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

LAYOUTS = pytest.mark.parametrize(
    ("num_workers", "num_replicas"),
    [(1, 4), (2, 2), (2, 4), (4, 4)],
    ids=lambda count: str(count),
)


def contexts(
    num_workers: int, num_replicas: int
) -> list[tf.distribute.InputContext]:
    return [
        tf.distribute.InputContext(num_workers, worker, num_replicas)
        for worker in range(num_workers)
    ]


def global_batches(
    make: Callable[[tf.distribute.InputContext], tf.data.Dataset],
    num_workers: int,
    num_replicas: int,
    num_steps: int,
) -> list[tuple[np.ndarray, ...]]:
    """Puts the rows of all replicas back: row i is from replica i mod R."""
    num_local = num_replicas // num_workers
    workers = [
        list(make(context).take(num_steps * num_local).as_numpy_iterator())
        for context in contexts(num_workers, num_replicas)
    ]
    steps = []
    for step in range(num_steps):
        local = slice(step * num_local, (step + 1) * num_local)
        replicas = [batch for worker in workers for batch in worker[local]]
        assert len(replicas) == num_replicas
        parts = zip(*replicas, strict=True)
        steps.append(
            tuple(
                np.stack(part, 1).reshape(-1, *part[0].shape[1:])
                for part in parts
            )
        )
    return steps
