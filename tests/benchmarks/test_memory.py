import json
import sys

import pytest

from benchmarks import memory


def test_writes_what_a_run_grew_by(tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "memory.json"
    small = ["model=mlp", "steps_per_loop=2", "eval_every_steps=0"]
    words = ["memory", f"--json={path}", "--steps=20", "--flags", *small]
    monkeypatch.setattr(sys, "argv", words)
    memory.main()
    assert "step      20" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert figures["memory.resident_mb"] > 100
    assert figures["memory.growth_mb"] < figures["memory.resident_mb"]


def test_a_run_that_fails_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="--train_steps=0"):
        memory.resident(["--train_steps=0"])
