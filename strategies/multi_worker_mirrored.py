"""One replica on each GPU of several processes, or one per process on CPUs.

Start the same command in every process, each with its own `TF_CONFIG`
(`cluster/tf_config.py`). The task of type `chief`, or else worker 0, keeps
the files. Every process uses all its GPUs, or those that `--devices` names,
and all must use equally many. On CPUs a process has one replica: more on one
machine are more processes, not logical devices.
"""

import dataclasses
import functools
import os

import tensorflow as tf

from errors import RequestError
from strategies import StrategyConfig
from strategies import _devices
from strategies.cluster import find
from strategies.cluster import join_guard
from strategies.cluster import rendezvous
from strategies.cluster import tf_config
from strategies.cluster import transfer
from strategies.cluster import watch


def create(config: StrategyConfig) -> tf.distribute.Strategy:
    """Waits for all workers and returns the strategy that they share.

    Must come before any other use of TensorFlow in the process.

    Raises:
        RequestError: if `TF_CONFIG` is wrong or differs between the workers,
            if the port of this worker is taken, if a device is named that is
            absent or would not be used, if NCCL is asked for without GPUs, or
            if TensorFlow already runs with other devices or threads.
        RunError: if a worker does not come up.
    """
    cluster = find.require(config.cluster, os.environ)
    # Of the CPUs TensorFlow would use the first alone, whatever is named.
    on_cpu = any(device.startswith("cpu") for device in config.devices)
    if on_cpu and config.devices != ("cpu:0",):
        raise RequestError(
            f"--devices={','.join(config.devices)}: under --strategy="
            "multi_worker_mirrored a worker has one CPU device; name cpu:0, "
            "and start more workers for more replicas."
        )
    transfer.use_large_pieces()
    _devices.configure(_with_threads(config))
    _devices.show_named_gpus(config)
    if config.collective == "nccl" and not tf.config.get_visible_devices("GPU"):
        raise RequestError(
            "--collective=nccl: this worker uses no GPU, on which alone NCCL "
            "runs; use ring or auto."
        )
    return _join(cluster, config.worker_timeout_secs, config.collective)


def _with_threads(config: StrategyConfig) -> StrategyConfig:
    """Returns the config with a thread for the exchange, if none was asked.

    TensorFlow has as many as cores. With one core, and one thread, gradients
    wait until the backward pass is over before they are on their way.
    """
    if config.inter_op_threads or len(os.sched_getaffinity(0)) > 1:
        return config
    return dataclasses.replace(config, inter_op_threads=2)


# A second one would start the collectives of this process again, while
# another worker may be in the midst of one (a crash in one of three runs).
@functools.cache
def _join(
    cluster: tf_config.Cluster, timeout_secs: int, collective: str
) -> tf.distribute.Strategy:
    links = rendezvous.meet(cluster, timeout_secs)
    watch.start(cluster, links)
    lines = {
        connection.fileno(): watch.last_words(
            f"{cluster.tasks[i]} {watch.CLOSED}"
        )
        for i, connection in links.incoming.items()
    }
    others = ", ".join(cluster.tasks[i] for i in links.incoming)
    late = watch.last_words(
        f"{others} did not join within {timeout_secs} s of the meeting"
    )
    with join_guard.guard(lines, timeout_secs, late):
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=collective.upper()
            )
        )
