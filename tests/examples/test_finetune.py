import json

import keras
import numpy as np
import pytest

from examples import finetune


@pytest.mark.parametrize("freeze", ["", "hidden_0"])
def test_pretrained_weights_help_at_equal_steps(tmp_path, freeze) -> None:
    ends = finetune.compare(tmp_path, 500, 40, freeze)
    new, pretrained = ends["new weights"], ends["pretrained"]
    assert pretrained["loss"] < 0.7 * new["loss"]
    assert pretrained["accuracy"] > new["accuracy"] + 0.15
    kernels = {
        run: keras.saving.load_model(tmp_path / run / "export" / "model.keras")
        .get_layer("hidden_0")
        .get_weights()[0]
        for run in ("first", "pretrained")
    }
    moved = np.abs(kernels["first"] - kernels["pretrained"]).max()
    assert (moved == 0) == bool(freeze)
    record = json.loads((tmp_path / "pretrained" / "run.json").read_text())
    assert record["config"]["train"]["initial_model"]
    assert record["config"]["train"]["train_steps"] == 40


def test_prints_both_ends(monkeypatch, capsys) -> None:
    end = {"loss": 0.5, "accuracy": 0.25}
    monkeypatch.setattr(
        finetune,
        "compare",
        lambda *_: {"new weights": end, "pretrained": end},
    )
    finetune.main(["--steps=3"])
    assert capsys.readouterr().out == (
        "After 3 steps, on unseen digits:\n"
        "  new weights  loss 0.500, accuracy 25.0%\n"
        "  pretrained   loss 0.500, accuracy 25.0%\n"
    )
