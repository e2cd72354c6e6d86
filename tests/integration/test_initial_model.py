"""Fine-tuning: how a run starts, goes on, and is shared by workers."""

import numpy as np
import pytest
import tensorflow as tf

import train
from errors import RequestError
from flags.command_line import Configs
from model import ModelConfig
from tests import processes
from training import RunConfig
from training import TrainConfig

MODEL = ModelConfig(model="mlp")


def _run(folder, steps: int, word: str = "") -> None:
    config = TrainConfig(
        train_steps=steps,
        steps_per_loop=2,
        eval_every_steps=0,
        callbacks=(),
        initial_model=word,
        export=() if word else ("keras",),
    )
    run = RunConfig(model_dir=str(folder))
    train.run(Configs(run=run, model=MODEL, train=config))


def _weights(folder, step: int) -> dict[str, np.ndarray]:
    path = str(folder / "checkpoints" / f"step-{step}")
    reader = tf.train.load_checkpoint(path)
    return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    _run(folder, 4)
    return folder


def test_a_continued_run_needs_the_file_no_more(tmp_path, first) -> None:
    """It ends with the bits of one that was not interrupted."""
    file = tmp_path / "pretrained.keras"
    file.write_bytes((first / "export" / "model.keras").read_bytes())
    word = f"{file}:freeze=hidden_*"
    _run(tmp_path / "whole", 4, word)
    _run(tmp_path / "parts", 2, word)
    file.unlink()
    _run(tmp_path / "parts", 4, word)
    parts = _weights(tmp_path / "parts", 4)
    np.testing.assert_equal(parts, _weights(tmp_path / "whole", 4))
    before = _weights(first, 4)
    frozen, trained = "model/hidden_0/kernel", "model/outputs/kernel"
    np.testing.assert_array_equal(parts[frozen], before[frozen])
    assert np.abs(parts[trained] - before[trained]).max() > 0
    for other in ("", f"{file}:freeze=outputs"):
        with pytest.raises(RequestError, match="the run to continue has"):
            _run(tmp_path / "parts", 6, other)


def test_a_refused_start_leaves_no_folder(tmp_path) -> None:
    with pytest.raises(RequestError, match=r"must be a \.keras file"):
        _run(tmp_path / "run", 2, str(tmp_path / "gone.keras"))
    assert not (tmp_path / "run").exists()


def test_two_workers_start_from_the_same_weights(tmp_path, first) -> None:
    """And so end as one device does."""
    word = f"{first / 'export' / 'model.keras'}:freeze=hidden_*"
    _run(tmp_path / "one", 2, word)
    done = processes.run_workers(
        2,
        "--model=mlp",
        "--strategy=multi_worker_mirrored",
        "--train_steps=2",
        "--eval_every_steps=0",
        f"--model_dir={tmp_path / 'two'}",
        f"--initial_model={word}",
    )
    assert [each.returncode for each in done] == [0, 0], done
    assert [each.stdout.count("weights taken") for each in done] == [1, 0]
    one, two = _weights(tmp_path / "one", 2), _weights(tmp_path / "two", 2)
    for name in ("model/hidden_0/kernel", "model/outputs/kernel"):
        np.testing.assert_allclose(two[name], one[name], atol=2e-6)
