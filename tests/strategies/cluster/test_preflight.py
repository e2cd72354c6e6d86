import pytest

from errors import RequestError
from strategies import StrategyConfig
from strategies.cluster import preflight
from strategies.cluster import tpu_name
from tests import processes


def test_checks_cluster() -> None:
    environ = {"TF_CONFIG": processes.tf_configs(2)[0]}
    with pytest.raises(RequestError, match="TF_CONFIG names 2 workers"):
        preflight.check(StrategyConfig(), environ)
    preflight.check(StrategyConfig(strategy="multi_worker_mirrored"), environ)


def test_looks_for_tpu_under_its_strategy_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tpu_name, "_CHIPS", ())
    preflight.check(StrategyConfig(), {})
    with pytest.raises(RequestError, match="--tpu=local: no TPU"):
        preflight.check(StrategyConfig(strategy="tpu", tpu="local"), {})


def test_needs_no_tensorflow() -> None:
    result = processes.run(
        "import sys\n"
        "from strategies.cluster import preflight, rendezvous\n"
        "assert 'tensorflow' not in sys.modules",
        program="-c",
    )
    assert result.returncode == 0, result.stderr
