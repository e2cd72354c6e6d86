"""What can be refused about the job before TensorFlow is imported."""

from collections.abc import Mapping

from strategies import StrategyConfig
from strategies.cluster import tf_config
from strategies.cluster import tpu_name


def check(config: StrategyConfig, environ: Mapping[str, str]) -> None:
    """Checks `TF_CONFIG`, and that there is a TPU if one is asked for.

    Raises:
        RequestError: as `tf_config.check` and `tpu_name.find`.
    """
    tf_config.check(config.strategy, environ)
    if config.strategy == "tpu":
        tpu_name.find(config.tpu, environ)
