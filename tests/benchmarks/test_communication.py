import json
import sys

import pytest

from benchmarks import communication


def test_prints_a_table_and_writes_flat_json(
    tmp_path, monkeypatch, capsys
) -> None:
    path = tmp_path / "communication.json"
    words = ["communication", f"--json={path}", "--pairs=2"]
    monkeypatch.setattr(sys, "argv", [*words, "--seconds=0.2"])
    # Enough that headers are few beside the gradients.
    monkeypatch.setattr(communication, "_SIZES", (300, 400, 10))
    communication.main()
    assert "bfloat16" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert all(isinstance(value, float) for value in figures.values())
    assert "communication.mlp.vs_keras" in figures
    size = (300 * 400 + 400 + 400 * 10 + 10) * 4 / 1e6
    for way, expected in {
        "keras": size,
        "separate": size,
        "float32": size,
        "bfloat16": size / 2,
    }.items():
        # The other worker may be a part of an exchange ahead when the count of
        # 30 begins. Others on this machine may use loopback meanwhile.
        assert figures[f"communication.mlp.{way}_mb"] >= expected * 29 / 30


def test_a_worker_that_fails_is_quoted() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'shapes'"):
        communication._run({})
