"""Chooses where the description of the cluster comes from, and says so."""

from collections.abc import Mapping
from collections.abc import MutableMapping

from errors import RequestError
from strategies import StrategyConfig
from strategies.cluster import kubernetes
from strategies.cluster import slurm
from strategies.cluster import tf_config
from strategies.cluster.tf_config import Cluster

_WORDS = {
    "tf_config": "TF_CONFIG",
    "slurm": "Slurm's variables",
    "kubernetes": "the variables of the Kubernetes Job",
}
_MOST_PEERS = 8


def check(config: StrategyConfig, environ: Mapping[str, str]) -> Cluster | None:
    """Compares what is described with the strategy that was asked for.

    Args:
        config: What was asked for.
        environ: Environment variables.

    Returns:
        The cluster; None if there is none and none is needed, as for an
        evaluator.

    Raises:
        RequestError: if a description is wrong, if one is needed and there is
            none, and if one of several workers is given a strategy that knows
            only one.
    """
    if tf_config.is_evaluator(environ):
        return None
    if config.strategy == "multi_worker_mirrored":
        return _read(_choose(config.cluster, environ), environ)
    cluster = tf_config.read(environ)
    if cluster and cluster.num_workers > 1:
        raise RequestError(
            f"--strategy={config.strategy}: TF_CONFIG names "
            f"{cluster.num_workers} workers, and each would train alone into "
            "the same folder; use --strategy=multi_worker_mirrored or unset "
            "TF_CONFIG."
        )
    if cluster is None and config.cluster == "auto":
        for name, several in (
            ("slurm", slurm.is_several(environ)),
            ("kubernetes", kubernetes.is_several(environ)),
        ):
            if several:
                raise RequestError(
                    f"--strategy={config.strategy}: by {_WORDS[name]} this is "
                    "one of several workers, and each would train alone; use "
                    "--strategy=multi_worker_mirrored, or "
                    "--cluster=tf_config if they are runs of their own."
                )
    return cluster


def require(source: str, environ: MutableMapping[str, str]) -> Cluster:
    """Returns the cluster that a multi-worker strategy cannot do without.

    Prints what was found, and writes it to `TF_CONFIG`: TensorFlow, which
    reads that when the strategy is created, gets what was checked here.

    Args:
        source: Value of `--cluster`.
        environ: Environment variables.

    Raises:
        RequestError: if there is no description, or a wrong one.
    """
    name = _choose(source, environ)
    cluster = _read(name, environ)
    print(_line(name, cluster, environ), flush=True)
    environ["TF_CONFIG"] = tf_config.write(cluster)
    return cluster


def _present(environ: Mapping[str, str]) -> list[str]:
    """Returns the sources that describe something, the first choice first."""
    is_present = {
        "tf_config": bool(environ.get("TF_CONFIG", "").strip()),
        "slurm": slurm.is_several(environ),
        "kubernetes": kubernetes.is_present(environ),
    }
    return [name for name, present in is_present.items() if present]


def _choose(source: str, environ: Mapping[str, str]) -> str:
    if source != "auto":
        return source
    return next(iter(_present(environ)), "tf_config")


def _read(name: str, environ: Mapping[str, str]) -> Cluster:
    if name == "slurm":
        return slurm.read(environ)
    if name == "kubernetes":
        return kubernetes.read(environ)
    cluster = tf_config.read(environ)
    if cluster is None:
        found = "TF_CONFIG is not set"
        if slurm.is_job(environ):
            found += " and this is not one of several tasks of srun"
        raise RequestError(
            f"--strategy=multi_worker_mirrored: {found}, so this would be a "
            "lone worker; start python launch.py on one machine, or tasks with "
            "srun, or pods of an indexed Kubernetes Job, or set TF_CONFIG in "
            f"every process, as in {tf_config.EXAMPLE}, or use "
            "--strategy=mirrored."
        )
    return cluster


def _line(name: str, cluster: Cluster, environ: Mapping[str, str]) -> str:
    """Says in one line what was found and what was passed over."""
    peers = [
        address
        for i, address in enumerate(cluster.workers)
        if i != cluster.position
    ]
    shown = peers[:_MOST_PEERS]
    if len(peers) > _MOST_PEERS:
        # The last one shows where a list ends that is too long or too short.
        shown = [*peers[: _MOST_PEERS - 1], "...", peers[-1]]
    plural = "" if len(peers) == 1 else "s"
    line = (
        f"Cluster from {_WORDS[name]}: {cluster.tasks[cluster.position]}, "
        f"{len(peers)} peer{plural}"
    )
    if peers:
        line += f": {', '.join(shown)}"
    unused = [
        _WORDS[other]
        for other in _present(environ)
        if other != name and not _agrees(other, cluster, environ)
    ]
    if unused:
        line += f" ({' and '.join(unused)} not used)"
    return line


def _agrees(name: str, cluster: Cluster, environ: Mapping[str, str]) -> bool:
    try:
        return _read(name, environ) == cluster
    except RequestError:
        return False
