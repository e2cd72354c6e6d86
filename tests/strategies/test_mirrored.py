import pytest
import tensorflow as tf

from errors import RequestError
from strategies import StrategyConfig
from strategies import _devices
from strategies import mirrored


def _create(num_replicas: int) -> tf.distribute.Strategy:
    devices = tuple(f"cpu:{i}" for i in range(num_replicas))
    config = StrategyConfig(strategy="mirrored", devices=devices)
    return mirrored.create(config)


@pytest.mark.parametrize("num_replicas", [2, 4, 1, 3])
def test_sums_over_replicas(num_replicas: int) -> None:
    """Any sizes one after another: the default reduction would abort."""
    strategy = _create(num_replicas)
    assert strategy.num_replicas_in_sync == num_replicas

    @tf.function(autograph=False)
    def total() -> tf.Tensor:
        def replica_fn() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return context.all_reduce("SUM", tf.constant(1.0))

        return strategy.run(replica_fn)

    values = strategy.experimental_local_results(total())
    assert [float(value) for value in values] == [num_replicas] * num_replicas


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["GPU:0", "GPU:1"], type(None)),
        (["CPU:0"], tf.distribute.ReductionToOneDevice),
    ],
)
def test_reduces_by_default_on_gpus_only(
    monkeypatch: pytest.MonkeyPatch, found: list[str], expected: type
) -> None:
    calls = []
    monkeypatch.setattr(
        tf.distribute,
        "MirroredStrategy",
        lambda devices, cross_device_ops: calls.append(
            (devices, type(cross_device_ops))
        ),
    )
    monkeypatch.setattr(_devices, "resolve", lambda _: found)
    mirrored.create(StrategyConfig(strategy="mirrored"))
    assert calls == [(found, expected)]


def test_refuses_absent_gpu() -> None:
    config = StrategyConfig(strategy="mirrored", devices=("gpu:0", "gpu:63"))
    with pytest.raises(RequestError, match="--devices=gpu:0,gpu:63: there is"):
        mirrored.create(config)
