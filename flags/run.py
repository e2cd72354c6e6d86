"""Flags of the run as a whole."""

from absl import flags

from flags import _read
from training import RunConfig

flags.DEFINE_string(
    "mode",
    RunConfig.mode,
    "train; evaluate the newest checkpoint; or follow a training that runs "
    "elsewhere, and evaluate each new one; or rehearse: build everything, show "
    "the plan, train nothing, and prove a TPU's layout without a TPU.",
)
flags.DEFINE_string(
    "model_dir",
    RunConfig.model_dir,
    "Folder of everything the run writes; what is there is continued. Empty: "
    "a new folder under runs/.",
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


def run_config() -> RunConfig:
    """Reads this group. Raises `RequestError` for a value out of range."""
    return _read.read(RunConfig)
