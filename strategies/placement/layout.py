"""How many workers, replicas and devices a run will have, before it has any."""

import math
from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from strategies import StrategyConfig
from strategies import _devices
from strategies.cluster import find
from strategies.placement import topology


class Layout(NamedTuple):
    """One way to lay out a run."""

    name: str
    """Strategy, or the name of the TPU."""
    workers: int
    """Processes."""
    replicas: int
    devices: int
    """Logical devices of each replica."""


def layouts(
    config: StrategyConfig,
    create: Callable[[StrategyConfig], tf.distribute.Strategy],
    environ: Mapping[str, str],
) -> list[Layout]:
    """Returns the layout of a run, one for each `--tpu_topology`.

    Neither a TPU nor another worker is asked; the others are taken to have as
    many devices as this one.

    Args:
        config: Checked.
        create: The strategy's own, for those of one process.
        environ: Environment variables.

    Raises:
        RequestError: as `find.check`, `topology.parse` and `create`.
    """
    if config.strategy == "tpu":
        return [_of_tpu(config, name) for name in config.tpu_topology]
    if config.strategy == "multi_worker_mirrored":
        cluster = find.check(config, environ)
        workers = cluster.num_workers if cluster else 1
        replicas = workers * len(_devices.resolve(config))
        return [Layout(config.strategy, workers, replicas, 1)]
    strategy = create(config)
    return [Layout(config.strategy, 1, strategy.num_replicas_in_sync, 1)]


def _of_tpu(config: StrategyConfig, name: str) -> Layout:
    mesh_shape = topology.parse(name).mesh_shape
    replicas = topology.count_replicas(mesh_shape, config.computation_shape)
    return Layout(name, 1, replicas, math.prod(config.computation_shape))
