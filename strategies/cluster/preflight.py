"""What can be refused about the job before TensorFlow is imported."""

from collections.abc import Mapping

from errors import RequestError
from strategies import StrategyConfig
from strategies.cluster import find
from strategies.cluster import tf_config
from strategies.cluster import tpu_name


def check(config: StrategyConfig, environ: Mapping[str, str]) -> None:
    """Checks who is in the job, and that there is a TPU if one is asked for.

    Raises:
        RequestError: as `find.check` and `tpu_name.find`, and for a task that
            nothing here can do.
    """
    find.check(config, environ)
    # It would train, alone, into the folder of the others.
    if tf_config.is_evaluator(environ):
        raise RequestError(
            "TF_CONFIG: task.type 'evaluator' is not supported: nothing "
            "evaluates beside a training yet; leave that process out, or use "
            "--mode=evaluate without TF_CONFIG."
        )
    if config.strategy == "tpu":
        tpu_name.find(config.tpu, environ)
