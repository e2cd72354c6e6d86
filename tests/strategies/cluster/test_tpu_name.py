import http.server
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from errors import RequestError
from strategies import StrategyConfig
from strategies.cluster import tpu_name


@pytest.fixture(autouse=True)
def _no_chips(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a TPU, wherever the tests run."""
    monkeypatch.setattr(tpu_name, "_CHIPS", ("/dev/no_such_chip*",))
    monkeypatch.setattr(tpu_name, "_SECS", 1.0)


@pytest.fixture
def chips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpu_name, "_CHIPS", ("/dev/no_such_chip", "/dev/nul*"))


@pytest.fixture
def open_address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"127.0.0.1:{port}"


@pytest.fixture
def metadata_host() -> Iterator[str]:
    """A metadata server that answers as Google Cloud's does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if known else 403)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("chips")
@pytest.mark.parametrize("tpu", ["", "local"])
def test_finds_chips_of_this_machine(tpu: str) -> None:
    assert tpu_name.find(tpu, {}) == "local"


def test_finds_open_address(open_address: str) -> None:
    tpu = f"grpc://{open_address},grpc://{open_address}"
    assert tpu_name.find(tpu, {}) == tpu


@pytest.mark.parametrize(
    "variable", ["KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"]
)
def test_environment_names_tpu(variable: str, open_address: str) -> None:
    tpu = f"grpc://{open_address}"
    assert tpu_name.find("", {variable: tpu}) == tpu


def test_flag_comes_before_environment(open_address: str) -> None:
    tpu = f"grpc://{open_address}"
    assert tpu_name.find(tpu, {"TPU_NAME": "another"}) == tpu


@pytest.mark.parametrize("variable", ["GCE_METADATA_HOST", "GCE_METADATA_IP"])
def test_name_needs_metadata_server(variable: str, metadata_host: str) -> None:
    assert tpu_name.find("my-tpu", {variable: metadata_host}) == "my-tpu"


@pytest.mark.parametrize(
    ("tpu", "environ", "message"),
    [
        ("", {}, "--tpu is empty, so are KUBE_.* and TPU_NAME: no TPU, becau"),
        ("", {"TPU_NAME": "local"}, "TPU_NAME=local: .* machine has no /dev"),
        ("local", {}, "--tpu=local: no TPU, because this machine has no /dev"),
        ("grpc://", {}, "'grpc://' is not grpc://HOST:PORT"),
        ("grpc://:8470", {}, "'grpc://:8470' is not grpc://HOST:PORT"),
        ("grpc://a:b", {}, "'grpc://a:b' is not grpc://HOST:PORT"),
        ("grpc://a:65536", {}, "'grpc://a:65536' is not grpc://HOST:PORT"),
        ("grpc://a.invalid", {}, r"a\.invalid:8470 does not answer"),
    ],
)
def test_refuses_absent_tpu(
    tpu: str, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(RequestError, match=message) as error:
        tpu_name.find(tpu, environ)
    assert "plain `tensorflow` drives no TPU" in str(error.value)
    assert "pip install -e .[tpu]" in str(error.value)


def test_refuses_closed_address(closed_address: str) -> None:
    message = f"{closed_address} does not answer .*refused"
    with pytest.raises(RequestError, match=message):
        tpu_name.find(f"grpc://{closed_address}", {})


def test_refuses_name_outside_google_cloud(closed_address: str) -> None:
    message = f"a name needs Google Cloud and {closed_address} does not answer"
    with pytest.raises(RequestError, match=message):
        tpu_name.find("my-tpu", {"GCE_METADATA_HOST": closed_address})


def test_silent_metadata_server_is_given_up(open_address: str) -> None:
    start = time.monotonic()
    with pytest.raises(RequestError, match="--tpu=my-tpu: no TPU"):
        tpu_name.find("my-tpu", {"GCE_METADATA_HOST": open_address})
    assert time.monotonic() - start < 10


def test_slow_host_lookup_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    monkeypatch.setattr(tpu_name, "_connect", lambda *_: is_over.wait(60))
    monkeypatch.setattr(tpu_name, "_SECS", 0.1)
    with pytest.raises(RequestError, match=r"nothing within 0\.1 s"):
        tpu_name.find("grpc://a:1", {})
    is_over.set()


@pytest.mark.parametrize(
    ("tpu", "environ", "expected"),
    [
        ("", {}, False),
        ("local", {"TPU_NAME": "big"}, False),
        ("big", {}, True),
        ("", {"TPU_NAME": "big"}, True),
        ("", {"TPU_NAME": "local"}, False),
        ("grpc://a:1", {}, True),
    ],
)
def test_knows_what_is_remote(
    tpu: str, environ: dict[str, str], expected: bool
) -> None:
    config = StrategyConfig(strategy="tpu", tpu=tpu)
    assert tpu_name.is_remote(config, environ) is expected
    assert not tpu_name.is_remote(StrategyConfig(), environ)
