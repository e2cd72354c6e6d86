"""Flags of the run as a whole."""

from absl import flags

from flags import _read
from training import RunConfig

flags.DEFINE_string(
    "mode",
    RunConfig.mode,
    "train; evaluate: a checkpoint; follow: each new checkpoint of a training "
    "that runs elsewhere; rehearse: build everything, show the plan, train "
    "nothing, and prove a TPU's layout without a TPU; scaling: measure 1, 2, "
    "... replicas or workers of this machine.",
)
flags.DEFINE_string(
    "model_dir",
    RunConfig.model_dir,
    "Folder of everything the run writes; what is there is continued. Empty: "
    "a new folder under runs/.",
)
flags.DEFINE_string(
    "checkpoint",
    RunConfig.checkpoint,
    "What --mode=evaluate reads: newest, best, a step, or the path of a "
    "checkpoint, instead of --model_dir.",
)
flags.DEFINE_integer(
    "seed",
    RunConfig.seed,
    "Seed of weights, order of data and random layers.",
)
flags.DEFINE_boolean(
    "deterministic",
    RunConfig.deterministic,
    "Use only operations that give the same bits each time.",
)
flags.DEFINE_integer(
    "rehearse_steps",
    RunConfig.rehearse_steps,
    "Steps that a rehearsal for a TPU runs on this machine; 0: it compiles "
    "only.",
)
flags.DEFINE_integer(
    "scaling_secs",
    RunConfig.scaling_secs,
    "Seconds for each measurement of --mode=scaling.",
)


def run_config() -> RunConfig:
    """Reads this group. Raises `RequestError` for a value out of range."""
    return _read.read(RunConfig)
