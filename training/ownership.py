"""One training for each folder.

The kernel holds the lock for the process and lets go of it however the process
ends, so that one left by a dead run needs no judgement. Evaluation takes none.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import time

from errors import RequestError
from training import files

_NAME = "lock"
# A network disk may offer no locks.
_UNSUPPORTED = (
    errno.ENOLCK,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EINVAL,
)
_held: dict[str, int] = {}  # path → open file


def acquire(model_dir: str) -> None:
    """Makes this process the only one that trains into `model_dir`.

    It stays so for the life of the process; a child does not inherit it. To be
    called by the chief, before it writes anything. Makes the folder if need be.

    Args:
        model_dir: Folder of the run.

    Raises:
        RequestError: if a live process trains into it, saying which, or if
            the folder cannot be written.
    """
    if files.is_object_store(model_dir):
        _say_unlocked(model_dir, "no local folder")
        return
    path = os.path.join(os.path.realpath(model_dir), _NAME)
    if _is_held(path):
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RequestError(
            f"--model_dir={model_dir}: cannot be written ({error.strerror}); "
            "choose another one."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _describe_owner(file)
        os.close(file)
        raise RequestError(
            f"--model_dir={model_dir}: {owner} is training into it; wait for "
            "its end, or choose another one."
        ) from None
    except OSError as error:
        os.close(file)
        if error.errno not in _UNSUPPORTED:
            raise
        _say_unlocked(model_dir, str(error.strerror))
        return
    _held[path] = file
    _write_owner(file)


def _is_held(path: str) -> bool:
    """Whether this process holds the lock on the file that is there now."""
    if path not in _held:
        return False
    try:
        if os.path.samestat(os.fstat(_held[path]), os.stat(path)):
            return True
    except FileNotFoundError:
        pass
    os.close(_held.pop(path))  # the folder was removed under it
    return False


def _write_owner(file: int) -> None:
    owner = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": round(time.time(), 3),
    }
    # On a full disk the lock still holds, without a name to it.
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, (json.dumps(owner) + "\n").encode(), 0)


def _describe_owner(file: int) -> str:
    try:
        owner = json.loads(os.pread(file, 4096, 0))
        since = time.strftime(
            "%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner["since"])
        )
        return f"process {owner['pid']} on {owner['host']}, since {since},"
    except (ValueError, KeyError, TypeError):
        return "another process"  # it has not said yet who it is


def _say_unlocked(model_dir: str, reason: str) -> None:
    print(
        f"{model_dir} cannot be locked ({reason}): take care that no other "
        "training writes it.",
        flush=True,
    )


def _forget() -> None:
    """Closes a forked child's copies, which would keep the lock alive."""
    while _held:
        os.close(_held.popitem()[1])


os.register_at_fork(after_in_child=_forget)
