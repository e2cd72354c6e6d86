"""A wrong request for a TPU ends at once, and before anything is asked."""

import sys
import types

import pytest
import tensorflow as tf

import train
from data import DataConfig
from data import DatasetInfo
from errors import RequestError
from flags import command_line
from strategies import StrategyConfig
from strategies import tpu
from strategies.cluster import preflight
from strategies.cluster import tpu_name
from tests import processes
from training import RunConfig

LIMIT_SECS = 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--computation_shape=2,1,1,1", "--partition_dimensions=1,4"],
            "--partition_dimensions=1,4: makes 4 parts, but",
        ),
        (
            ["--tpu=grpc://10.0.0.2:8470", "--model_dir=runs/x"],
            "--model_dir=runs/x: is a folder of this machine",
        ),
        (["--tpu=local"], "--"),
        (["--computation_shape=2,x"], "--computation_shape=2,x: must be"),
    ],
    ids=["parts", "folder", "no TPU", "letters"],
)
def test_refuses_at_once(words: list[str], message: str) -> None:
    started = processes.start("--strategy=tpu", *words, is_new=True)
    done = processes.finish(started, LIMIT_SECS)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"train.py: {message}")
    assert len(done.stderr.splitlines()) == 1


def test_python_in_the_input_is_refused_before_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything else about the TPU is made to look right."""
    features = tf.TensorSpec([2], tf.float32)
    labels = tf.TensorSpec([], tf.int32)
    mine = types.ModuleType("a.generator")
    mine.info = lambda config: DatasetInfo(
        task="classification",
        num_examples={"train": 8, "eval": 4},
        features=features,
        labels=labels,
        num_classes=3,
    )
    mine.source = lambda *_: tf.data.Dataset.from_generator(
        lambda: iter([([1.0, 2.0], 1)]), output_signature=(features, labels)
    )
    monkeypatch.setitem(sys.modules, "a", types.ModuleType("a"))
    monkeypatch.setitem(sys.modules, "a.generator", mine)
    monkeypatch.setattr("flags.registry.check", lambda *_: None)
    monkeypatch.setattr(preflight, "check", lambda *_: None)
    monkeypatch.delattr(tpu_name, "find")
    monkeypatch.delattr(tpu, "create")
    configs = command_line.Configs(
        run=RunConfig(model_dir="gs://bucket/run"),
        strategy=StrategyConfig(strategy="tpu", tpu="grpc://10.0.0.2:8470"),
        data=DataConfig(dataset="a.generator"),
    )
    with pytest.raises(RequestError, match=r"a\.generator: reading train"):
        train.run(configs)
