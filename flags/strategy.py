"""Flags of where the replicas run."""

from absl import flags

from flags import _read
from flags import registry
from strategies import CLUSTERS
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
    "Seconds to wait for the other workers to come up.",
)
flags.DEFINE_string(
    "tpu",
    StrategyConfig.tpu,
    "Name or grpc:// address of the TPU, or local. Empty: from the "
    "environment.",
)
flags.DEFINE_string(
    "cluster",
    StrategyConfig.cluster,
    f"Where the workers are listed: {', '.join(CLUSTERS)}. auto: the first "
    "that is there of TF_CONFIG, several tasks of a Slurm step, an indexed "
    "Kubernetes Job.",
)


def strategy_config() -> StrategyConfig:
    """Reads this group. Raises `RequestError` for a value not allowed."""
    config = _read.read(StrategyConfig)
    registry.check("strategies", config.strategy, "strategy")
    return config
