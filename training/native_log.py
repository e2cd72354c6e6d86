"""TensorFlow's own log on stderr, without the notes on its start.

While it is loaded, TensorFlow logs what no `TF_CPP_MIN_LOG_LEVEL` can stop,
and later, as errors, that it has found no GPU. They come from C++ straight to
file descriptor 2. That one is given to a process of its own, which passes on
all other lines: they come even if this process crashes.
"""

import os
import shutil
import subprocess
import sys

_NOTES = (
    "^WARNING: All log messages before absl::InitializeLog",
    "^I0000 ",
    # There is no driver. What a driver that is there says, is passed on.
    r"^E0000 .*failed call to cuInit: .*\(303\)",
    "^E0000 .*oneDNN supports DT_INT64 only",
    # TensorFlow with CUDA registers some of its own parts twice.
    "^E0000 .*Unable to register cu[A-Z]+ factory",
    "^W0000 .*computation placer already registered",
)


def drop_notes() -> None:
    """Drops the notes from here to the end of the process.

    With `TF_CPP_MIN_LOG_LEVEL=0`, the level at which somebody looks for
    something, all lines stay; so they do where there is no `grep`, and in
    process 1 of a container: with it the kernel ends all others at once, and
    the last words would be lost.
    """
    grep = shutil.which("grep")
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0" or not grep:
        return
    if os.getpid() == 1:
        return
    try:
        stderr = os.dup(2)
        # In a session of its own it survives Ctrl-C; it ends with its input.
        process = subprocess.Popen(
            [grep, "-avE", "--line-buffered", "|".join(_NOTES)],
            stdin=subprocess.PIPE,
            stdout=stderr,
            start_new_session=True,
        )
    except OSError:  # stderr is closed, or no process is to be had
        return
    # It outlives this process: without this, Python would warn of it.
    process.returncode = 0
    if process.stdin:
        os.dup2(process.stdin.fileno(), 2)
        process.stdin.close()
    # What Python says itself takes no detour, and may see a terminal.
    sys.stderr = open(
        stderr, "w", buffering=1, errors="backslashreplace", closefd=False
    )
