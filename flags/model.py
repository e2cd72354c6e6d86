"""Flags of what is trained."""

from absl import flags

from flags import _read
from flags import registry
from model import DTYPE_POLICIES
from model import ModelConfig

flags.DEFINE_string(
    "model",
    ModelConfig.model,
    f"One of {', '.join(registry.names('model'))}, or the dotted path of a "
    "module of your own.",
)
flags.DEFINE_list(
    "model_options",
    list(ModelConfig.model_options),
    "Settings of the model as key=value,key=value; an unknown key is refused "
    "with the list of those it has.",
)
flags.DEFINE_string(
    "dtype_policy",
    ModelConfig.dtype_policy,
    f"Keras dtype policy of all layers: one of {', '.join(DTYPE_POLICIES)}.",
)


def model_config() -> ModelConfig:
    """Reads this group. Raises `RequestError` for a value not allowed."""
    config = _read.read(ModelConfig)
    registry.check("model", config.model, "model")
    return config
