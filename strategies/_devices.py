"""Threads and devices of this process, set before TensorFlow starts.

Nothing here starts the runtime: only physical devices are listed, since a
listing of logical ones would make it too late for the strategy.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from errors import RequestError
from strategies import StrategyConfig


def resolve(config: StrategyConfig) -> list[str]:
    """Returns the devices to use, such as `["GPU:0", "GPU:1"]`.

    Those that were named; or else all GPUs; or else the CPU.

    Raises:
        RequestError: if a GPU is named that this machine does not have.
            TensorFlow would run on the CPU without a word.
    """
    gpus = [f"GPU:{i}" for i in range(len(_gpus()))]
    named = [device.upper() for device in config.devices]
    for device in named:
        if device.startswith("GPU") and device not in gpus:
            exist = ", ".join(["cpu:0", *gpus]).lower()
            raise RequestError(
                f"--devices={','.join(config.devices)}: there is no "
                f"{device.lower()}; this machine has {exist}."
            )
    return named or gpus or ["CPU:0"]


def configure(config: StrategyConfig) -> None:
    """Sets the threads and splits the CPU into as many devices as are named.

    Repeating it with equal values changes nothing.

    Raises:
        RequestError: if TensorFlow is already running with other values.
    """
    threading = tf.config.threading
    if config.intra_op_threads:
        _set(
            threading.set_intra_op_parallelism_threads,
            config.intra_op_threads,
            request=f"--intra_op_threads={config.intra_op_threads}",
        )
    if config.inter_op_threads:
        _set(
            threading.set_inter_op_parallelism_threads,
            config.inter_op_threads,
            request=f"--inter_op_threads={config.inter_op_threads}",
        )
    _split_cpu(config)


def show_named_gpus(config: StrategyConfig) -> None:
    """Hides the GPUs that are not named; hides none if nothing is named.

    For strategies that use every GPU they see.

    Raises:
        RequestError: as `resolve`, and if TensorFlow is already running with
            other values.
    """
    if not config.devices:
        return
    named = resolve(config)
    visible = [gpu for i, gpu in enumerate(_gpus()) if f"GPU:{i}" in named]
    _set(
        tf.config.set_visible_devices,
        visible,
        "GPU",
        request=f"--devices={','.join(config.devices)}",
    )


def _gpus() -> list[tf.config.PhysicalDevice]:
    return tf.config.list_physical_devices("GPU")


def _split_cpu(config: StrategyConfig) -> None:
    indices = [
        int(device.removeprefix("cpu:"))
        for device in config.devices
        if device.startswith("cpu:")
    ]
    needed = max(indices, default=0) + 1
    cpu = tf.config.list_physical_devices("CPU")[0]
    split = tf.config.get_logical_device_configuration(cpu) or [None]
    if needed > len(split):
        _set(
            tf.config.set_logical_device_configuration,
            cpu,
            [tf.config.LogicalDeviceConfiguration()] * needed,
            request=f"--devices={','.join(config.devices)}",
        )


def _set(setter: Callable[..., None], *values: Any, request: str) -> None:
    """Calls a setter of `tf.config`; it does nothing if nothing changes."""
    try:
        setter(*values)
    except RuntimeError as error:
        raise RequestError(
            f"{request}: TensorFlow already runs in this process with other "
            "threads or devices; ask for the same ones or start a new process."
        ) from error
