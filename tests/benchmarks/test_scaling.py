import json
import sys

import numpy as np
import pytest

from benchmarks import scaling

RATES = {
    "ideal": np.array([40.0, 80.0]),
    "one": np.array([20.0, 40.0]),
    "float32": np.array([10.0, 20.0]),
    "bfloat16": np.array([30.0, 60.0]),
    "strong": np.array([25.0, 50.0]),
    "one_process": np.array([30.0, 60.0]),
}
TORCH = {
    "torch_float32": np.array([5.0, 10.0]),
    "torch_bfloat16": np.array([4.0, 8.0]),
}


def test_each_is_measured_at_its_best_precision() -> None:
    figures = scaling._report("mlp", RATES | TORCH)
    assert figures["scaling.mlp.vs_ideal"] == 0.75
    assert figures["scaling.mlp.vs_ideal_float32"] == 0.25
    assert figures["scaling.mlp.vs_one"] == 1.5
    assert figures["scaling.mlp.strong.vs_one"] == 1.25
    assert figures["scaling.mlp.one_process.vs_one"] == 1.5
    assert figures["scaling.mlp.vs_torch"] == 6.0
    assert figures["scaling.mlp.vs_torch_float32"] == 2.0
    assert figures["scaling.mlp.ideal.images_per_sec"] == 60.0


def test_an_absent_peer_is_named_in_one_line(capsys) -> None:
    figures = scaling._report("mlp", RATES)
    assert not [key for key in figures if "torch" in key]
    assert "torch: not installed" in capsys.readouterr().out


@pytest.mark.slow
def test_prints_a_table_and_writes_flat_json(
    tmp_path, monkeypatch, capsys
) -> None:
    path = tmp_path / "scaling.json"
    words = [f"--json={path}", "--seconds=0.01", "--pairs=2"]
    monkeypatch.setattr(sys, "argv", ["scaling", *words])
    contest = scaling.Contest("mlp", ("hidden=8",), (8,), examples=256)
    monkeypatch.setattr(scaling, "CONTESTS", {"mlp": contest})
    scaling.main()
    assert "one_process" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert all(isinstance(value, float) for value in figures.values())
    assert figures["scaling.mlp.vs_ideal"] > 0
    has_peer = scaling.PEER.exists()
    assert ("scaling.mlp.vs_torch" in figures) == has_peer
