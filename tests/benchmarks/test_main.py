import json
import subprocess
import sys

import pytest

from benchmarks import __main__ as main_lib


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    """Runs all with two stand-ins; returns the figures and what was asked."""
    path = tmp_path / "results.json"
    asked = []

    def run(name: str, arguments: list[str]) -> dict[str, float] | None:
        asked.append((name, arguments))
        return None if "--fail" in arguments else {f"{name}.speed": len(asked)}

    monkeypatch.setattr(main_lib, "names", lambda: ["loop", "layers"])
    monkeypatch.setattr(main_lib, "run", run)

    def call(*words: str):
        argv = ["benchmarks", f"--json={path}", *words]
        monkeypatch.setattr(sys, "argv", argv)
        main_lib.main()
        return json.loads(path.read_text()), asked

    call.path = path
    return call


def test_keeps_all_figures_and_where_they_are_from(benchmark) -> None:
    results, _ = benchmark()
    assert results["loop.speed"] == 1
    assert results["layers.speed"] == 2
    assert list(results)[:3] == ["commit", "time", "processor"]
    assert all(results[key] for key in ("commit", "time", "processor"))


def test_only_renews_some_and_passes_arguments_on(benchmark) -> None:
    benchmark()
    results, asked = benchmark("--only", "loop", "--arguments", "--pairs=3")
    assert asked[-1] == ("loop", ["--pairs=3"])
    assert results["loop.speed"] == 3
    assert results["layers.speed"] == 2


def test_one_that_fails_is_named_and_leaves_no_figure(benchmark) -> None:
    benchmark()
    with pytest.raises(SystemExit, match="failed: loop"):
        benchmark("--only", "loop", "--arguments", "--fail")
    results = json.loads(benchmark.path.read_text())
    assert "loop.speed" not in results
    assert results["layers.speed"] == 2


def test_finds_the_benchmarks_by_their_files() -> None:
    found = main_lib.names()
    assert {"loop", "startup", "memory", "input", "layers"} <= set(found)
    assert not any(name.startswith("_") for name in found)


@pytest.mark.parametrize("code", [0, 1])
def test_runs_each_as_a_process(monkeypatch, code) -> None:
    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        (path,) = (
            word.removeprefix("--json=")
            for word in words
            if word.startswith("--json=")
        )
        assert words[1:3] == ["-m", "benchmarks.loop"]
        with open(path, "w") as file:
            json.dump({"loop.x": 1.5}, file)
        return subprocess.CompletedProcess(words, code)

    monkeypatch.setattr(main_lib.subprocess, "run", run)
    expected = None if code else {"loop.x": 1.5}
    assert main_lib.run("loop", []) == expected
