"""What can be refused about the job before TensorFlow is imported."""

from collections.abc import Mapping

from strategies import StrategyConfig
from strategies.cluster import find
from strategies.cluster import tpu_name
from strategies.placement import wheels


def check(config: StrategyConfig, environ: Mapping[str, str]) -> None:
    """Checks who is in the job, and that there is a TPU if one is asked for.

    A rehearsal, which alone has a `tpu_topology`, needs no TPU.

    Raises:
        RequestError: as `find.check`, `wheels.check` and `tpu_name.find`.
    """
    find.check(config, environ)
    if config.strategy == "tpu" and not config.tpu_topology:
        wheels.check()
        tpu_name.find(config.tpu, environ)
