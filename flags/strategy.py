"""Flags of where the replicas run."""

from absl import flags

from flags import _read
from flags import registry
from strategies import CLUSTERS
from strategies import COLLECTIVES
from strategies import StrategyConfig

flags.DEFINE_string(
    "strategy",
    StrategyConfig.strategy,
    f"One of {', '.join(registry.names('strategies'))}.",
)
flags.DEFINE_list(
    "devices",
    list(StrategyConfig.devices),
    "Devices of this process, such as gpu:0,gpu:1. cpu:0,cpu:1 splits the CPU "
    "into two logical devices. Empty: all GPUs, or else the CPU.",
)
flags.DEFINE_integer(
    "intra_op_threads",
    StrategyConfig.intra_op_threads,
    "Threads inside one operation; 0 lets TensorFlow choose.",
)
flags.DEFINE_integer(
    "inter_op_threads",
    StrategyConfig.inter_op_threads,
    "Operations that run at the same time; 0 lets TensorFlow choose.",
)
flags.DEFINE_integer(
    "worker_timeout_secs",
    StrategyConfig.worker_timeout_secs,
    "Seconds to wait for the other workers to come up, or, with --mode=follow, "
    "for a training's first checkpoint.",
)
flags.DEFINE_string(
    "tpu",
    StrategyConfig.tpu,
    "Name or grpc:// address of the TPU, or local. Empty: from the "
    "environment.",
)
flags.DEFINE(
    _read.Ints(),
    "computation_shape",
    list(StrategyConfig.computation_shape),
    "Cores of a TPU that work together on each replica, along x, y, z and "
    "within a chip, such as 2,1,1,1. Empty: one core.",
    serializer=flags.ListSerializer(","),
)
flags.DEFINE(
    _read.Ints(),
    "partition_dimensions",
    list(StrategyConfig.partition_dimensions),
    "Parts into which each dimension of the features is split over the cores "
    "of their replica, the batch's first, such as 1,2,1,1. Empty: not split.",
    serializer=flags.ListSerializer(","),
)
flags.DEFINE_boolean(
    "spmd_partitioning",
    StrategyConfig.spmd_partitioning,
    "Have XLA cut one program for all cores of a replica; unset: where a "
    "replica has several.",
)
flags.DEFINE_list(
    "tpu_topology",
    list(StrategyConfig.tpu_topology),
    "TPUs to rehearse for, such as v5e:2x4,v5e:4x4; for --mode=rehearse.",
)
flags.DEFINE_string(
    "cluster",
    StrategyConfig.cluster,
    f"Where the workers are listed: {', '.join(CLUSTERS)}. auto: the first "
    "that is there of TF_CONFIG, several tasks of a Slurm step, an indexed "
    "Kubernetes Job.",
)
flags.DEFINE_string(
    "collective",
    StrategyConfig.collective,
    f"How workers add up tensors, one of {', '.join(COLLECTIVES)}: nccl on "
    "GPUs, ring anywhere; auto: TensorFlow chooses.",
)


def strategy_config() -> StrategyConfig:
    """Reads this group. Raises `RequestError` for a value not allowed."""
    config = _read.read(StrategyConfig)
    registry.check("strategies", config.strategy, "strategy")
    return config
