"""A pseudo terminal: its bytes are those that a user's would receive."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Iterator
from unittest import mock


class Terminal:
    """Has 80 columns until it is resized; `stream` writes on it."""

    def __init__(self) -> None:
        self._reader, writer = pty.openpty()
        self.stream = os.fdopen(writer, "w", buffering=1)
        self.resize(80)

    def resize(self, columns: int, rows: int = 24) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.stream.fileno(), termios.TIOCSWINSZ, size)

    def read(self) -> str:
        """Returns what was written since the last call."""
        # The system hands on what was written in its own time: up to a mark.
        self.stream.write("\0")
        self.stream.flush()
        written = b""
        while not written.endswith(b"\0"):
            written += os.read(self._reader, 2**16)
        return written[:-1].decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self._reader)


@contextlib.contextmanager
def opened() -> Iterator[Terminal]:
    """Lets a new terminal be stdout and stderr inside."""
    made = Terminal()
    with (
        mock.patch.dict(os.environ, {"TERM": "xterm"}),
        mock.patch.object(sys, "stdout", made.stream),
        mock.patch.object(sys, "stderr", made.stream),
    ):
        try:
            yield made
        finally:
            made.close()


def lines(written: str) -> list[str]:
    """Splits what was written into lines as they stood on the screen."""
    plain = re.sub(r"\x1b\[\d*[A-Z]", "", written)
    # Spaces hide what stood there.
    parts = [line.rstrip(" ") for line in re.split(r"[\r\n]+", plain)]
    return [line for line in parts if line]
