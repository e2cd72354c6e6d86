"""Where the replicas run: config → `tf.distribute.Strategy`.

A public module here is a strategy; its name is the value of `--strategy`. It
provides

    create(config: StrategyConfig) -> tf.distribute.Strategy

which checks the configuration first (`errors.RequestError` for a wrong
request) and touches TensorFlow after. It is the first TensorFlow call of the
program, because devices, servers and threads are fixed at that moment.

`cluster/` says who is in the job, in pure Python; `placement/` which core of a
TPU holds what. Nothing here knows about models or data.
"""

import dataclasses
import re

from errors import RequestError

COLLECTIVES = ("auto", "ring", "nccl")
CLUSTERS = ("auto", "tf_config", "slurm", "kubernetes")

_TPU_FLAGS = (
    "tpu",
    "computation_shape",
    "partition_dimensions",
    "spmd_partitioning",
    "tpu_topology",
)
_DEVICE = re.compile(r"(cpu|gpu):(0|[1-9][0-9]*)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StrategyConfig:
    """What `--strategy` and its companions say."""

    strategy: str = "one_device"
    """Name of a module in `strategies`."""
    devices: tuple[str, ...] = ()
    """Devices of this process, such as `cpu:0`, `gpu:1`. `cpu:0,cpu:1` splits
    the CPU into two logical devices. Empty: all GPUs, or else the CPU."""
    intra_op_threads: int = 0
    """Threads inside one operation; 0 lets TensorFlow choose."""
    inter_op_threads: int = 0
    """Operations that run at the same time; 0 lets TensorFlow choose."""
    worker_timeout_secs: int = 600
    """Seconds to wait for the other workers to come up, or, in mode `follow`,
    for a training's first checkpoint. Positive."""
    tpu: str = ""
    """Name or `grpc://` address of the TPU, or `local`; empty: found by the
    environment."""
    computation_shape: tuple[int, ...] = ()
    """Cores of a TPU that work together on each replica, along `x, y, z` and
    within a chip: four positive numbers. Empty: one core a replica."""
    partition_dimensions: tuple[int, ...] = ()
    """Parts into which each dimension of the features is split over the cores
    of their replica, the batch's first; each positive. Empty: not split."""
    spmd_partitioning: bool | None = None
    """Whether XLA cuts one program for all cores of a replica; None: where a
    replica has several."""
    tpu_topology: tuple[str, ...] = ()
    """TPUs to rehearse for, such as `v5e:2x4`; `--mode=rehearse` only."""
    cluster: str = "auto"
    """Where the workers are listed, one of `CLUSTERS`. `auto`: the first that
    is there of `TF_CONFIG`, several tasks of a Slurm step, an indexed
    Kubernetes Job."""
    collective: str = "auto"
    """How workers add up tensors, one of `COLLECTIVES`: `nccl` on GPUs, `ring`
    anywhere; `auto`: TensorFlow chooses."""

    def __post_init__(self) -> None:
        _check_devices(self.devices)
        if self.cluster not in CLUSTERS:
            raise RequestError(
                f"--cluster={self.cluster}: must be one of "
                f"{', '.join(CLUSTERS)}."
            )
        several = self.strategy == "multi_worker_mirrored"
        if self.cluster in ("slurm", "kubernetes") and not several:
            raise RequestError(
                f"--cluster={self.cluster}: --strategy={self.strategy} knows "
                "one worker; drop the flag or use --strategy="
                "multi_worker_mirrored."
            )
        if self.collective not in COLLECTIVES:
            raise RequestError(
                f"--collective={self.collective}: must be one of "
                f"{', '.join(COLLECTIVES)}."
            )
        if self.collective != "auto" and not several:
            raise RequestError(
                f"--collective={self.collective}: only --strategy="
                "multi_worker_mirrored takes it; drop the flag."
            )
        if self.devices and self.strategy == "tpu":
            raise RequestError(
                f"--devices={','.join(self.devices)}: --strategy=tpu uses "
                "every core of the TPU; drop the flag."
            )
        if self.strategy != "tpu":
            _refuse_tpu_flags(self)
        if self.worker_timeout_secs < 1:
            raise RequestError(
                f"--worker_timeout_secs={self.worker_timeout_secs}: must be 1 "
                "or more."
            )
        for name in ("intra_op_threads", "inter_op_threads"):
            if getattr(self, name) < 0:
                raise RequestError(
                    f"--{name}={getattr(self, name)}: must be 0 (TensorFlow "
                    "chooses) or more."
                )


def _check_devices(devices: tuple[str, ...]) -> None:
    received = f"--devices={','.join(devices)}"
    for device in devices:
        if not _DEVICE.fullmatch(device):
            raise RequestError(
                f"{received}: {device!r} is not a device; write them as "
                "cpu:0,cpu:1 or gpu:0,gpu:1."
            )
    if len(set(devices)) < len(devices):
        raise RequestError(
            f"{received}: a device is named twice; each may appear once."
        )
    if len({device.split(":")[0] for device in devices}) > 1:
        raise RequestError(
            f"{received}: CPUs and GPUs cannot be mixed; name devices of one "
            "kind."
        )


def _refuse_tpu_flags(config: StrategyConfig) -> None:
    for name in _TPU_FLAGS:
        value = getattr(config, name)
        if value != getattr(StrategyConfig, name):
            words = [value] if isinstance(value, str | bool) else value
            raise RequestError(
                f"--{name}={','.join(map(str, words))}: --strategy="
                f"{config.strategy} uses no TPU; drop the flag or use "
                "--strategy=tpu."
            )
