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
from tests.strategies.placement import test_topology

Calls = list[tuple[str, Any]]
# Two by two chips of two cores.
TOPOLOGY = test_topology.make_topology((2, 2, 1, 2))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Puts stand-ins in the place of a TPU; returns what was called."""
    calls: Calls = []

    def stand_in(name: str, returns: Any) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            calls.append((name, (arguments, keywords)))
            return returns

        return call

    resolver = tf.distribute.cluster_resolver
    for module, name, returns in (
        (tpu_name, "find", "grpc://a:1"),
        (_devices, "configure", ""),
        (resolver, "TPUClusterResolver", "the resolver"),
        (tf.config, "experimental_connect_to_cluster", ""),
        (tf.tpu.experimental, "initialize_tpu_system", TOPOLOGY),
        (tf.distribute, "TPUStrategy", "the strategy"),
    ):
        monkeypatch.setattr(module, name, stand_in(name, returns))
    return calls


def test_calls_in_order(calls: Calls) -> None:
    config = StrategyConfig(strategy="tpu", tpu="my-tpu", intra_op_threads=2)
    assert tpu.create(config) == "the strategy"
    assert calls == [
        ("find", (("my-tpu", os.environ), {})),
        ("configure", ((config,), {})),
        ("TPUClusterResolver", ((), {"tpu": "grpc://a:1"})),
        ("experimental_connect_to_cluster", (("the resolver",), {})),
        ("initialize_tpu_system", (("the resolver",), {})),
        (
            "TPUStrategy",
            (
                ("the resolver",),
                {
                    "experimental_device_assignment": None,
                    "experimental_spmd_xla_partitioning": False,
                },
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("shape", "spmd", "cores"),
    [
        (
            (1, 1, 1, 2),
            None,
            [
                [[0, 0, 0, 0], [0, 0, 0, 1]],
                [[1, 0, 0, 0], [1, 0, 0, 1]],
                [[0, 1, 0, 0], [0, 1, 0, 1]],
                [[1, 1, 0, 0], [1, 1, 0, 1]],
            ],
        ),
        (
            (2, 1, 1, 2),
            False,
            [
                [[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 1]],
                [[0, 1, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0], [1, 1, 0, 1]],
            ],
        ),
    ],
    ids=["one chip", "two chips"],
)
def test_gives_each_replica_its_cores(
    calls: Calls, shape: tuple[int, ...], spmd: bool | None, cores: Any
) -> None:
    tpu.create(
        StrategyConfig(
            strategy="tpu", computation_shape=shape, spmd_partitioning=spmd
        )
    )
    keywords = calls[-1][1][1]
    assignment = keywords["experimental_device_assignment"]
    assert isinstance(assignment, tf.tpu.experimental.DeviceAssignment)
    assert assignment.topology is TOPOLOGY
    found = assignment.core_assignment
    assert found.shape == (len(cores), len(cores[0]), 4)
    assert sorted(map(sorted, found.tolist())) == sorted(map(sorted, cores))
    assert keywords["experimental_spmd_xla_partitioning"] is (spmd is None)


def test_refuses_replicas_larger_than_the_tpu(calls: Calls) -> None:
    config = StrategyConfig(strategy="tpu", computation_shape=(4, 1, 1, 1))
    with pytest.raises(RequestError, match=r"needs 4 .* 2x2x1x2, has 2"):
        tpu.create(config)
    assert calls[-1][0] == "initialize_tpu_system"


def test_refuses_a_wrong_shape_before_any_call(calls: Calls) -> None:
    config = StrategyConfig(strategy="tpu", computation_shape=(2, 1, 1))
    with pytest.raises(RequestError, match="has 3 entries"):
        tpu.create(config)
    assert not calls


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
