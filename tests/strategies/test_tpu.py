import os
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from errors import RequestError
from strategies import StrategyConfig
from strategies import _devices
from strategies import tpu
from strategies.cluster import tpu_name
from tests import processes

Calls = list[tuple[str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Puts stand-ins in the place of a TPU; returns what was called."""
    calls: Calls = []

    def stand_in(name: str, returns: str) -> Callable[..., str]:
        def call(*arguments: Any, **keywords: Any) -> str:
            calls.append((name, arguments or keywords))
            return returns

        return call

    resolver = tf.distribute.cluster_resolver
    for module, name, returns in (
        (tpu_name, "find", "grpc://a:1"),
        (_devices, "configure", ""),
        (resolver, "TPUClusterResolver", "the resolver"),
        (tf.config, "experimental_connect_to_cluster", ""),
        (tf.tpu.experimental, "initialize_tpu_system", ""),
        (tf.distribute, "TPUStrategy", "the strategy"),
    ):
        monkeypatch.setattr(module, name, stand_in(name, returns))
    return calls


def test_calls_in_order(calls: Calls) -> None:
    config = StrategyConfig(strategy="tpu", tpu="my-tpu", intra_op_threads=2)
    assert tpu.create(config) == "the strategy"
    assert calls == [
        ("find", ("my-tpu", os.environ)),
        ("configure", (config,)),
        ("TPUClusterResolver", {"tpu": "grpc://a:1"}),
        ("experimental_connect_to_cluster", ("the resolver",)),
        ("initialize_tpu_system", ("the resolver",)),
        ("TPUStrategy", ("the resolver",)),
    ]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("Could not lookup TPU metadata.\nmore"),
        RuntimeError("Could not lookup TPU metadata."),
        OSError("Could not lookup TPU metadata"),
        tf.errors.NotFoundError(None, None, "Could not lookup TPU metadata"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.usefixtures("calls")
def test_failure_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(resolver: object) -> None:
        raise error

    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", fail)
    message = (
        r"^--tpu=my-tpu: cannot use the TPU grpc://a:1 \(Could not lookup TPU "
        r"metadata\); plain `tensorflow` drives no TPU.*\.$"
    )
    with pytest.raises(RequestError, match=message):
        tpu.create(StrategyConfig(strategy="tpu", tpu="my-tpu"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("local", "--tpu=local: no TPU, because this machine has no /dev"),
        ("", "--tpu is empty, so are KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS and"),
        ("some-name", "--tpu=some-name: no TPU, because a name needs Google"),
        ("grpc://127.0.0.1:9", "127.0.0.1:9 does not answer"),
    ],
)
def test_refuses_absent_tpu(
    monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    """Without stand-ins; what each looks for is absent wherever tests run."""
    monkeypatch.setattr(tpu_name, "_CHIPS", ("/dev/no_such_chip*",))
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    for variable in tpu_name._VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(RequestError, match=message):
        tpu.create(StrategyConfig(strategy="tpu", tpu=name))


def test_plain_tensorflow_refuses_chips_in_its_own_words() -> None:
    """TensorFlow's own failure, in a process of its own."""
    result = processes.run(
        "import errors\n"
        "from strategies import StrategyConfig, tpu\n"
        "from strategies.cluster import tpu_name\n"
        "tpu_name._CHIPS = ('/dev/nul*',)\n"
        "try:\n"
        "    tpu.create(StrategyConfig(strategy='tpu', tpu='local'))\n"
        "except errors.RequestError as error:\n"
        "    print(error)\n",
        program="-c",
    )
    assert result.stdout.startswith("--tpu=local: cannot use the TPU local (")
    assert "plain `tensorflow` drives no TPU" in result.stdout
    assert result.stdout.count("\n") == 1
