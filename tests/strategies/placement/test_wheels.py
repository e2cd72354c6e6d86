import configparser
import importlib.metadata

import pytest

from errors import RequestError
from strategies.placement import wheels
from tests import processes

PAIR = {"tensorflow-tpu": "2.20.0", "libtpu": "0.0.21"}
NIGHTLY = "0.0.52.dev20260101+nightly"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Returns what is installed; fill it."""
    versions: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    return versions


@pytest.mark.parametrize(
    "found",
    [
        PAIR,
        {**PAIR, "libtpu": "0.0.14"},
        # A later one is not known to fail with anything.
        {"tensorflow-tpu": "2.23.0", "libtpu": "0.0.60"},
    ],
)
def test_takes(found: dict[str, str], installed: dict[str, str]) -> None:
    installed.update(found)
    wheels.check()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"tensorflow": "2.21.0"}, "tensorflow 2.21.0 is installed, which"),
        ({"tensorflow-cpu": "2.20.0"}, "tensorflow-cpu 2.20.0 is installed"),
        ({}, "TensorFlow of no known wheel is installed"),
        ({**PAIR, "tensorflow": "2.20.0"}, "tensorflow 2.20.0 are both"),
        ({"tensorflow-tpu": "2.20.0"}, "without libtpu; `pip install libtpu=="),
        ({**PAIR, "libtpu": "0.0.52"}, "libtpu 0.0.21, not with 0.0.52; `pip"),
        ({**PAIR, "libtpu": "0.0.22"}, "not with 0.0.22"),
        ({**PAIR, "libtpu": NIGHTLY}, "not with 0.0.52.dev20260101"),
    ],
)
def test_refuses(
    found: dict[str, str], message: str, installed: dict[str, str]
) -> None:
    installed.update(found)
    with pytest.raises(RequestError, match=message) as info:
        wheels.check()
    assert "pip install" in str(info.value)
    assert len(str(info.value).splitlines()) == 1


def test_names_the_pair_that_is_pinned() -> None:
    setup = configparser.ConfigParser()
    setup.read(processes.ROOT / "setup.cfg")
    lines = setup["options.extras_require"]["tpu"].split("\n")
    pinned = dict(line.split(" ==") for line in lines if line)
    assert pinned["libtpu"] == wheels._LIBTPU
    assert pinned["tensorflow-tpu"].startswith(wheels._TENSORFLOW)
