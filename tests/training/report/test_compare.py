from collections.abc import Sequence

from tests.training.report import runs
from training.report import compare
from training.report import facts
from training.report import history as history_lib


def _render(folders: Sequence[str]) -> str:
    histories = [history_lib.read(folder) for folder in folders]
    return compare.render(histories, [facts.read(f) for f in folders])


def test_runs_share_their_charts(tmp_path) -> None:
    better = [*runs.LINES, runs.evaluation(60, loss=0.5, accuracy=0.9375)]
    other = runs.RECORD | {
        "config": runs.RECORD["config"] | {"run": {"seed": 4}},
        "versions": {"python": "3.12.1", "keras": "3.15.1"},
    }
    text = _render(
        [
            runs.write(tmp_path / "first"),
            runs.write(tmp_path / "second", better, other),
        ]
    )
    titles = ["loss, evaluation", "loss, training", "accuracy, evaluation"]
    for title in [*titles, "accuracy, training", "learning rate"]:
        assert f"<figcaption><b>{title}</b>" in text
    assert text.count("<svg") == 5
    assert "<td>0.75</td><td>0.75 at 40</td>" in text
    assert "<td>0.9375</td><td>0.9375 at 60</td>" in text
    _, _, differences = text.partition("In what they differ")
    assert "<td>--seed</td><td>3</td><td>4</td>" in differences
    assert "<td>python</td><td>3.11.7</td><td>3.12.1</td>" in differences
    assert "keras" not in differences
    assert "--dataset" not in differences
    assert "--model_dir" not in differences


def test_runs_of_equal_names_are_named_by_their_paths(tmp_path) -> None:
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "other"]
    histories = [history_lib.read(runs.write(path)) for path in paths]
    assert compare.name_runs(histories) == [*map(str, paths[:2]), "other"]


def test_runs_with_nothing_in_common(tmp_path) -> None:
    lines = [runs.train(1, error=1.0, goodput=0.5)]
    text = _render(
        [
            runs.write(tmp_path / "<b>", lines, record=None),
            runs.write(tmp_path / "b", record=None),
        ]
    )
    assert "<td>none</td>" in text
    assert "share of the time: steps" in text
    assert "In nothing that is known" in text
    assert "&lt;b&gt;" in text
    assert "<b>step" not in text


def test_evaluations_of_a_follower_stand_for_the_missing(tmp_path) -> None:
    folder = runs.write(tmp_path, [runs.train(1, loss=1.0)], record=None)
    runs.write(tmp_path / "evaluator", [runs.evaluation(1, loss=0.5)])
    text = _render([folder])
    assert "loss, evaluation" in text
    assert "<td>0.5</td><td>0.5 at 1</td>" in text


def test_many_runs_stay_below_a_megabyte(tmp_path) -> None:
    values = {f"metric_{i}": 0.5 for i in range(2)}
    lines = [runs.evaluation(s, **values, loss=s % 7) for s in range(500)]
    history = history_lib.read(runs.write(tmp_path, lines))
    text = compare.render([history] * 40, [{}] * 40)
    assert len(text.encode()) < 1_000_000
