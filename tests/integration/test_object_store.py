"""A run whose folder can neither rename nor append nor lock."""

import json
import time

import numpy as np
import pytest
import tensorflow as tf

import train
from data import DataConfig
from flags.command_line import Configs
from model import ModelConfig
from strategies import StrategyConfig
from tests import object_store
from training import RunConfig
from training import TrainConfig
from training import checkpoint
from training import metrics_log

Losses = dict[tuple[int, str], float]


class _Killed(BaseException):
    """What nothing in the program catches, like a kill."""


def _run(model_dir: str, mode: str = "train") -> dict[str, float]:
    return train.run(
        Configs(
            RunConfig(model_dir=model_dir, mode=mode, seed=3),
            StrategyConfig(),
            DataConfig(),
            ModelConfig(model="cnn"),
            TrainConfig(
                train_steps=12,
                steps_per_loop=1,
                eval_every_steps=4,
                checkpoint_every_steps=4,
                checkpoints_to_keep=2,
                learning_rate=0.01,
                early_stopping="loss",
                callbacks=("progress", "summaries"),
                export=("keras",) if mode == "train" else (),
            ),
        )
    )


def _losses(model_dir: str) -> Losses:
    folder = tf.io.gfile.join(model_dir, "metrics")
    texts = [
        object_store.read(tf.io.gfile.join(folder, name))
        for name in tf.io.gfile.listdir(folder)
    ]
    lines = map(json.loads, texts)
    return {(line["step"], line["split"]): line["loss"] for line in lines}


def _weights(model_dir: str) -> dict[str, np.ndarray]:
    path = tf.io.gfile.join(model_dir, "checkpoints", "step-12")
    reader = tf.train.load_checkpoint(path)
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names}


def _kill_after(
    monkeypatch: pytest.MonkeyPatch, model_dir: str, step: int
) -> None:
    """Runs up to `step`, once there is a checkpoint."""
    append = metrics_log.append

    def append_or_die(folder: str, now: int, *rest: object) -> None:
        append(folder, now, *rest)
        if now == step:
            while not checkpoint.list_steps(model_dir):
                time.sleep(0.01)
            raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(metrics_log, "append", append_or_die)
        with pytest.raises(_Killed):
            _run(model_dir)


def test_a_killed_run_goes_on_bit_for_bit_and_is_evaluated(
    tmp_path, monkeypatch, capsys
) -> None:
    store = object_store.make(monkeypatch, tmp_path.name)
    straight, killed = f"{store}/straight", f"{store}/killed"
    _run(straight)
    _kill_after(monkeypatch, killed, 7)
    assert max(metrics_log.steps(killed)) == 7
    # A checkpoint that the kill found half written, straight to its name.
    for suffix in (".index", ".data-00000-of-00001"):
        path = f"{killed}/checkpoints/step-7{suffix}"
        with tf.io.gfile.GFile(path, "w") as file:
            file.write("half")
    capsys.readouterr()
    _run(killed)
    out = capsys.readouterr().out
    assert "Continuing at step 4 of 12" in out
    assert f"{killed} cannot be locked" in out
    assert _losses(killed) == _losses(straight)
    assert len(_losses(killed)) == 12 + 3
    weights, expected = _weights(killed), _weights(straight)
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(value, expected[name])
    assert checkpoint.list_steps(killed) == [8, 12]
    best = checkpoint.list_steps(killed, checkpoint.BEST)
    assert best == checkpoint.list_steps(straight, checkpoint.BEST) == [12]
    names = tf.io.gfile.listdir(f"{killed}/checkpoints")
    assert len(names) == 2 * 3, names  # nothing half, nothing temporary
    assert _run(killed, "evaluate")["loss"] == _losses(straight)[12, "eval"]
    assert tf.io.gfile.exists(f"{killed}/export/model.keras")
