"""The pods of an indexed Kubernetes Job as workers.

    metadata: {name: train}
    spec: {completions: 2, parallelism: 2, completionMode: Indexed}
    spec.template.spec:
      subdomain: train     # a headless Service, selector job-name: train
      containers:
      - env:
        - {name: WORKERS, value: "2"}        # as many as completions
        - {name: SERVICE, value: train}      # as subdomain

Kubernetes itself sets `JOB_COMPLETION_INDEX`, the index of the worker, and
calls the pod `<job>-<index>`; with a headless Service its peers find it as
`<job>-<index>.<service>`. How many completions there are it tells nobody,
hence `WORKERS`. `JOB_NAME` is needed only where `HOSTNAME` is not the pod's
name (`hostNetwork`), `PORT` only where 2222 is taken.
"""

import re
from collections.abc import Mapping

from errors import RequestError
from strategies.cluster import _variable
from strategies.cluster.tf_config import Cluster

_MOST = 10_000
_PORT = 2222
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(_LABEL)
# The Service may be given with its namespace: `train.team.svc`.
_SERVICE = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def is_present(environ: Mapping[str, str]) -> bool:
    """Whether this is a pod of an indexed Job, of any kind."""
    return "JOB_COMPLETION_INDEX" in environ


def is_several(environ: Mapping[str, str]) -> bool:
    """Whether the pods are told that they are the workers of one run.

    An indexed Job without `WORKERS` is one of many runs of their own.
    """
    return is_present(environ) and environ.get("WORKERS", "1") != "1"


def read(environ: Mapping[str, str]) -> Cluster:
    """Reads what the Job says.

    Args:
        environ: Environment variables.

    Returns:
        The cluster, one worker for each pod.

    Raises:
        RequestError: if a variable is missing or not of the form above.
    """
    if not is_present(environ):
        raise RequestError(
            "--cluster=kubernetes: JOB_COMPLETION_INDEX is not set, so this "
            "is no pod of an indexed Job; set completionMode: Indexed."
        )
    num_workers = _variable.integer(
        environ, "WORKERS", 1, _MOST, "set it to the completions of the Job"
    )
    index = _variable.integer(
        environ,
        "JOB_COMPLETION_INDEX",
        0,
        num_workers - 1,
        "WORKERS must be the completions of the Job",
    )
    port = _PORT
    if "PORT" in environ:
        port = _variable.integer(
            environ, "PORT", 1, 65535, "2222 is used without it"
        )
    service = environ.get("SERVICE", "")
    if not _SERVICE.fullmatch(service):
        raise RequestError(
            f"SERVICE={service!r}: must be the name of a headless Service, the "
            "same as the subdomain of the pods."
        )
    job = _job(environ, index)
    return Cluster(
        tuple(f"{job}-{i}.{service}:{port}" for i in range(num_workers)),
        "worker",
        index,
    )


def _job(environ: Mapping[str, str], index: int) -> str:
    job = environ.get("JOB_NAME", "")
    if job:
        if not _NAME.fullmatch(job):
            raise RequestError(
                f"JOB_NAME={job!r}: must be the name of the Job, of small "
                "letters, digits and hyphens."
            )
        return job
    host = environ.get("HOSTNAME", "")
    # With setHostnameAsFQDN the Service and the namespace follow.
    job, _, last = host.partition(".")[0].rpartition("-")
    if last != str(index) or not _NAME.fullmatch(job):
        raise RequestError(
            f"HOSTNAME={host!r}: is not <job>-{index}, the name of a pod of an "
            "indexed Job; set JOB_NAME to the name of the Job."
        )
    return job
