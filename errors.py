"""How a run ends other than by being done; `train.main` knows them all."""

import contextlib
import os
import sys
from collections.abc import Iterator

# Exit code of a run that was asked to stop and can be continued.
INTERRUPTED = 42


class RequestError(ValueError):
    """The user asked for something that cannot be done: exit code 2.

    Raised for a bad flag, cluster description, data path or model option. Its
    message is one sentence for the user: what was received, what is allowed,
    what to do. Every exception that is none of these is a fault of the program
    and keeps its traceback.
    """

    # Keras adds five lines to an exception that passes through a layer, unless
    # it has this attribute.
    _keras_call_info_injected = True


class RunError(RuntimeError):
    """The run cannot go on, through no fault of the request: exit code 1.

    A loss that is not finite, a worker that is gone, a full disk. Its message
    is one sentence: what happened, where, and what to do.
    """


class Interrupted(Exception):
    """The run was asked to stop, and can be continued: exit code 42.

    Its message says what was saved.
    """


@contextlib.contextmanager
def missing_is_wrong(path: str, received: str) -> Iterator[None]:
    """Inside, a user's module that is not there is a wrong request.

    Args:
        path: Dotted path of the module that is imported.
        received: The flag and its value.

    Raises:
        RequestError: if it, or a package it is in, does not exist. What the
            module itself fails to import passes through.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and f"{path}.".startswith(f"{error.name}."):
            raise RequestError(
                f"{received}: there is no module {error.name!r}; run from the "
                "folder that holds it or set PYTHONPATH."
            ) from error
        raise


def say(line: str) -> None:
    """Prints a line on stderr that nothing else stands on.

    On a terminal it takes the place of the line that shows the progress.
    """
    is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    clear = "\r\x1b[K" if is_live else ""
    print(f"{clear}{line}", file=sys.stderr, flush=True)
