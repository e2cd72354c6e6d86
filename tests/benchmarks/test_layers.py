import json
import sys

from benchmarks import layers

KEYS = {
    "layers.batched_mat_vec.vs_memory",
    "layers.batched_mat_vec.vs_best",
    "layers.batched_mat_vec.vs_python_loop",
    "layers.batched_mat_vec.shared.added_mb",
    "layers.batched_mat_vec.shared.times_matmul",
    "layers.fixed_point.implicit.memory_ratio",
    "layers.fixed_point.unrolled.memory_ratio",
    "layers.scan_recurrence.64.loop_vs_scan",
}


def test_prints_tables_and_writes_flat_json(
    tmp_path, monkeypatch, capsys
) -> None:
    path = tmp_path / "layers.json"
    words = [f"--json={path}", "--rounds=2", "--num=20"]
    small = ["--size=5", "--batch=16", "--longest=64"]
    monkeypatch.setattr(
        sys, "argv", ["layers", *words, *small, "--iterations", "2", "20"]
    )
    layers.main()
    figures = json.loads(path.read_text())
    assert KEYS <= figures.keys()
    assert all(isinstance(value, float) for value in figures.values())
    assert all(figures[key] > 0 for key in KEYS)
    printed = capsys.readouterr().out
    for way in ("eager loop", "map_fn", "while_loop, XLA", "vectorized_map"):
        assert way in printed
