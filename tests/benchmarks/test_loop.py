import json
import sys

from benchmarks import loop


def test_prints_a_table_and_writes_flat_json(
    tmp_path, monkeypatch, capsys
) -> None:
    path = tmp_path / "loop.json"
    words = ["loop", f"--json={path}", "--seconds=0.01", "--pairs=2"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(loop, "CONTESTS", {"mlp": ("mlp", ("hidden=8",), 5)})
    loop.main()
    assert "mlp" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert figures["loop.mlp.vs_bare"] > 0
    assert all(isinstance(value, float) for value in figures.values())
