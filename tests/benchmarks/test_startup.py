import json
import sys

import pytest

from benchmarks import startup


def test_writes_the_ratio_and_where_the_time_goes(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(startup, "ours", lambda: 3.0)
    monkeypatch.setattr(startup, "fit", lambda: 2.0)
    monkeypatch.setattr(startup, "phases", lambda: {"imports": 1.5})
    path = tmp_path / "startup.json"
    words = ["startup", f"--json={path}", "--pairs=2"]
    monkeypatch.setattr(sys, "argv", words)
    startup.main()
    assert "imports" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert figures["startup.vs_fit"] == 1.5
    assert figures["startup.imports_seconds"] == 1.5
    assert figures["startup.fit_seconds"] == 2.0


@pytest.mark.slow
@pytest.mark.parametrize("contestant", [startup.ours, startup.fit])
def test_both_reach_their_first_step(contestant) -> None:
    assert contestant() > 0


def test_what_ends_too_early_is_an_error() -> None:
    words = ["-c", "import sys; print('hello'); sys.exit('no step')"]
    with pytest.raises(RuntimeError, match="before its first step:\nno step"):
        startup.seconds_to_first_step(words)
    words = ["-c", "print('told 1 2.5', flush=True); input()"]
    assert startup.seconds_to_first_step(words) > 0
