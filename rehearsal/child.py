"""Starts the process that has jax, and waits for its reply. No jax here."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from errors import RequestError
from errors import RunError
from rehearsal import exchange

_ROOT = Path(__file__).parent.parent
_INSTALL = "pip install -e .[rehearsal]"


def _missing() -> list[str]:
    return [
        name
        for name in ("jax", "jaxlib", "libtpu")
        if importlib.util.find_spec(name) is None
    ]


def is_installed() -> bool:
    """Returns whether `run` has what it needs."""
    return not _missing()


def check_installed() -> None:
    """Checks that jax and a libtpu are there, without importing them.

    Raises:
        RequestError: if either is missing.
    """
    missing = _missing()
    if not missing:
        return
    verb = "are" if len(missing) > 1 else "is"
    # A libtpu without jax came with tensorflow-tpu, which needs its own.
    tpu = "libtpu" not in missing
    where = " in an environment without the extra `tpu`" if tpu else ""
    raise RequestError(
        f"A rehearsal needs jax and libtpu, and {' and '.join(missing)} {verb} "
        f"not installed; run `{_INSTALL}`{where}."
    )


def run(
    request: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    timeout_secs: float,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Has the child do one request; see `worker` for what can be asked.

    Args:
        request: Its `num_replicas × num_partitions` is the number of devices.
        arrays: Name → array, for `execute`.
        timeout_secs: The child is killed after that.

    Returns:
        The child's message and arrays.

    Raises:
        RequestError: if jax or libtpu is not installed.
        RunError: if the child fails, with the reason in one line.
    """
    check_installed()
    num_devices = request["num_replicas"] * request["num_partitions"]
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        folder = Path(name)
        exchange.write(folder, "request", request, arrays)
        # Closed when this process ends, however it does.
        read, write = os.pipe()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "rehearsal.worker", name, str(read)],
                cwd=_ROOT,
                env=_environ(num_devices),
                pass_fds=[read],
                capture_output=True,
                text=True,
                timeout=timeout_secs,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RunError(
                f"rehearsal: `{request['kind']}` did not end within "
                f"{timeout_secs:g} s."
            ) from None
        finally:
            os.close(read)
            os.close(write)
        if done.returncode or not (folder / "reply.json").exists():
            raise RunError(f"rehearsal: {reason(done.stderr)}")
        reply, results = exchange.read(folder, "reply")
    if "error" in reply:
        raise RunError(f"rehearsal: {reply['error']}")
    return reply, results


def reason(stderr: str) -> str:
    """Returns the one line that says why a child died.

    A failed check of XLA's (`F1130 …`) wins over what comes after it, which
    is the stack; without one it is the last line that is no log line.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for line in lines:
        fatal = re.match(r"F\d{4} \S+ +\d+ \S+\] (.+)", line)
        if fatal:
            return f"XLA gave up: {fatal[1]}"
    said = [
        line
        for line in lines
        if not re.match(r"[IWE]\d{4} |\*\*\*|@ 0x|https?://|WARNING", line)
    ]
    return said[-1] if said else "the child ended without a word."


def _environ(num_devices: int) -> dict[str, str]:
    """Returns the environment of the child.

    XLA_FLAGS is replaced, not added to: what is meant for TensorFlow's XLA may
    be unknown to jaxlib's, which ends the process at an unknown flag.
    """
    return {
        **{k: v for k, v in os.environ.items() if k != "TF_CONFIG"},
        "JAX_PLATFORMS": "cpu",
        # Without it libtpu asks Google's metadata server who it is.
        "TPU_SKIP_MDS_QUERY": "1",
        # Or libtpu leaves two files in /tmp each time.
        "TPU_LOG_DIR": "disabled",
        # Compiling uses no TPU, so it need not wait for whoever has it.
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}",
    }
