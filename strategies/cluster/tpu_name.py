"""Which TPU is meant, and whether anything is there: before TensorFlow.

TensorFlow's resolver asks the metadata server of Google Cloud without a time
limit, and a connection to an address where nothing listens never returns
(measured on 2.21). Here each question is given a few seconds.
"""

import glob
import http.client
import socket
import threading
import urllib.request
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from errors import RequestError
from strategies import StrategyConfig

WHEEL = (
    "plain `tensorflow` drives no TPU: `pip install -e .[tpu]` into a fresh "
    "environment, on a machine that has one"
)
_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
# TPU VMs show their chips as one or the other, by generation.
_CHIPS = ("/dev/accel*", "/dev/vfio/[0-9]*")
_DEFAULT_PORT = "8470"
_SECS = 3.0


def find(tpu: str, environ: Mapping[str, str]) -> str:
    """Finds the TPU and makes sure that something answers there.

    Args:
        tpu: Value of `--tpu`; empty: `KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS`,
            `TPU_NAME`, or else the chips of this machine.
        environ: Environment variables.

    Returns:
        `local`, one or more `grpc://` addresses, or a name on Google Cloud.

    Raises:
        RequestError: if nothing is there.
    """
    name, source = name_of(tpu, environ)
    if name == "local":
        fault = _find_chips()
    elif name.startswith("grpc://"):
        fault = _call_addresses(name)
    else:
        fault = _ask_metadata_server(environ)
    if fault:
        raise RequestError(f"{source}: no TPU, because {fault}; {WHEEL}.")
    return name


def name_of(tpu: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Returns the TPU's name as `find` does, and who gave it; asks nobody."""
    if tpu:
        return tpu, f"--tpu={tpu}"
    for variable in _VARIABLES:
        if environ.get(variable):
            return environ[variable], f"{variable}={environ[variable]}"
    return "local", f"--tpu is empty, so are {' and '.join(_VARIABLES)}"


def is_remote(config: StrategyConfig, environ: Mapping[str, str]) -> bool:
    """Whether the work is done by the TPU of another machine."""
    return (
        config.strategy == "tpu" and name_of(config.tpu, environ)[0] != "local"
    )


def _find_chips() -> str:
    if any(glob.glob(pattern) for pattern in _CHIPS):
        return ""
    return f"this machine has no {' or '.join(_CHIPS)}"


def _call_addresses(addresses: str) -> str:
    """Connects to each of `grpc://host:port,...`; returns what went wrong."""
    for address in addresses.split(","):
        host, _, port = address.removeprefix("grpc://").partition(":")
        port = port or _DEFAULT_PORT
        if not host or not port.isdecimal() or int(port) > 65535:
            return f"{address!r} is not grpc://HOST:PORT"
        if fault := _attempt(_connect, host, int(port)):
            return f"{host}:{port} does not answer ({fault})"
    return ""


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), _SECS).close()


def _ask_metadata_server(environ: Mapping[str, str]) -> str:
    """Looks for Google Cloud, where a name is looked up."""
    # The variables that TensorFlow's resolver follows too.
    host = (
        environ.get("GCE_METADATA_HOST")
        or environ.get("GCE_METADATA_IP")
        or "metadata.google.internal"
    )
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/project/project-id",
        headers={"Metadata-Flavor": "Google"},
    )
    if fault := _attempt(_open, request):
        return f"a name needs Google Cloud and {host} does not answer ({fault})"
    return ""


def _open(request: urllib.request.Request) -> None:
    urllib.request.urlopen(request, timeout=_SECS).close()


def _attempt(action: Callable[..., None], *arguments: Any) -> str:
    """Returns why `action` failed or took too long; empty if it did not."""
    faults = [f"nothing within {_SECS:g} s"]

    def run() -> None:
        try:
            action(*arguments)
            faults.append("")
        except (OSError, ValueError, http.client.HTTPException) as error:
            faults.append(str(error))

    # A thread, because nothing else puts a limit on the look-up of a host.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_SECS)
    return faults[-1]
