"""A real browser without a window, asked through a pipe: no driver needed."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
_DEADLINE_SECS = 120.0


class Page:
    """A page as a phone shows it."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._count, self._rest = 0, b""
        self._session = ""
        self.events: list[dict[str, Any]] = []
        """What the browser has told of unasked."""

    def open(self, path: str, width: int, height: int) -> None:
        """Opens a file in a new tab and waits until it is loaded."""
        target = self.ask("Target.createTarget", url="about:blank")
        self._session = self.ask(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.ask("Page.navigate", url=Path(path).as_uri())
        while not self.told("Page.loadEventFired"):
            self.events.append(self._receive())

    def told(self, method: str) -> list[dict[str, Any]]:
        """Returns what the browser has told of one kind."""
        return [e["params"] for e in self.events if e.get("method") == method]

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression."""
        result = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True
        )
        return result["result"]["value"]

    def screenshot(self, path: Path) -> None:
        """Writes the whole page as PNG."""
        result = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(result["data"]))

    def ask(self, method: str, **params: Any) -> Any:
        """Sends a command of the DevTools protocol; returns its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._count:
            self.events.append(answer)
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + _DEADLINE_SECS
        while b"\0" not in self._rest:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._from], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._from, 2**16)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def start(folder: Path) -> Iterator[Page]:
    """Starts a browser, or skips the test where there is none.

    Args:
        folder: Receives what it keeps.
    """
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(_NAMES)}")
    # It reads from its descriptor 3 and writes to 4.
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    command = 'exec "$@" 3<&"$0" 4>&"${OUT}"'
    process = subprocess.Popen(
        [
            *("bash", "-c", command, str(to_read), program, *_FLAGS),
            f"--user-data-dir={folder}",
            f"--crash-dumps-dir={folder}",
        ],
        env={**os.environ, "OUT": str(from_write), "HOME": str(folder)},
        pass_fds=(to_read, from_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        page = Page(to_write, from_read)
        yield page
        page.ask("Browser.close")
    finally:
        os.close(to_write)
        os.close(from_read)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
