import json
import sys

from benchmarks import checkpoint
from model import ModelConfig


def test_prints_a_table_and_writes_flat_json(
    tmp_path, monkeypatch, capsys
) -> None:
    contest = checkpoint.CONTESTS["large"]._replace(
        model=ModelConfig(model="mlp", model_options=("hidden=8",)),
        window=0.01,
        interval=0.03,
        pairs=2,
    )
    path = tmp_path / "checkpoint.json"
    monkeypatch.setattr(sys, "argv", ["checkpoint", f"--json={path}"])
    monkeypatch.setattr(checkpoint, "CONTESTS", {"large": contest})
    checkpoint.main()
    assert "large" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert 0 < figures["checkpoint.large.vs_none"]
    stall = figures["checkpoint.large.stall_ms"]
    assert stall < figures["checkpoint.large.synchronous_ms"]
    assert all(isinstance(value, float) for value in figures.values())


def test_a_window_is_set_against_the_interval(monkeypatch) -> None:
    contest = checkpoint.CONTESTS["large"]._replace(
        model=ModelConfig(model="mlp", model_options=("hidden=8",)),
        window=5.0,
        interval=20.0,
        pairs=1,
    )
    half = checkpoint._pairs.Ratio(0.5, 0.4, 0.6)
    monkeypatch.setattr(
        checkpoint._pairs, "compare", lambda *_: (1.0, 2.0, half)
    )
    found = checkpoint.measure(contest)
    assert found["vs_none"] == 1 - 0.5 / 4
    assert found["vs_none_low"] == 1 - 0.6 / 4
