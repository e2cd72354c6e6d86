import json
import sys

import pytest

from benchmarks import loop
from benchmarks._contest import Contest


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the benchmark with a tiny model; returns its figures."""

    def run() -> dict[str, float]:
        path = tmp_path / "loop.json"
        words = ["loop", f"--json={path}", "--seconds=0.01", "--pairs=2"]
        monkeypatch.setattr(sys, "argv", words)
        tiny = Contest("mlp", ("hidden=8",), 5)
        monkeypatch.setattr(loop, "CONTESTS", {"mlp": tiny, "other": tiny})
        loop.main()
        return json.loads(path.read_text())

    return run


def test_prints_a_table_and_writes_flat_json(run, capsys) -> None:
    figures = run()
    assert "fit_best" in capsys.readouterr().out
    assert all(isinstance(value, float) for value in figures.values())
    assert all(value > 0 for value in figures.values())
    for other in ("bare", "fit", "fit_best"):
        assert f"loop.mlp.vs_{other}" in figures
        assert f"loop.mlp.vs_{other}_low" in figures
        assert f"loop.mlp.{other}_steps_per_sec" in figures
    assert "loop.other.vs_bare" in figures
    assert "loop.other.vs_fit" not in figures


def test_names_a_peer_that_is_not_installed(run, monkeypatch, capsys) -> None:
    monkeypatch.setattr(loop, "PEERS", {"orbit": lambda contest: None})
    figures = run()
    assert "orbit: not installed, left out" in capsys.readouterr().out
    assert "loop.mlp.vs_bare" in figures
    assert "loop.mlp.vs_orbit" not in figures
