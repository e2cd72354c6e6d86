import json

import pytest

from benchmarks import _command


def test_figures_are_written_where_asked(tmp_path) -> None:
    path = tmp_path / "figures.json"
    _command.write(str(path), {"a.b": 1.5})
    assert json.loads(path.read_text()) == {"a.b": 1.5}


def test_nothing_is_written_unless_asked(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    _command.write(None, {"a.b": 1.5})
    assert not list(tmp_path.iterdir())


def test_turns_last_as_long_as_told() -> None:
    made = _command.pairs_parser(None).parse_args(["--pairs=3"])
    assert (made.seconds, made.pairs, made.json) == (5.0, 3, None)
    with pytest.raises(SystemExit):
        _command.pairs_parser(None, None).parse_args(["--seconds=1"])
