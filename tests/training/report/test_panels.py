from tests.training.report import runs
from training.report import history as history_lib
from training.report import panels


def _make(tmp_path, lines) -> tuple[list[panels.Panel], list[str]]:
    return panels.make(history_lib.read(runs.write(tmp_path, lines)))


def test_train_and_eval_share_a_chart(tmp_path) -> None:
    found, left_out = _make(tmp_path, runs.LINES)
    assert [each.title for each in found] == [
        "loss",
        "accuracy",
        "learning rate",
    ]
    assert found[0].lines == {
        "train": ("train", "loss"),
        "eval": ("eval", "loss"),
    }
    assert found[2].lines == {"train": ("train", "learning_rate")}
    assert not left_out


def test_shares_of_the_time_are_on_one_chart(tmp_path) -> None:
    lines = [runs.train(1, loss=1.0, goodput=0.75, eval_share=0.25, mfu=0.5)]
    found, _ = _make(tmp_path, lines)
    assert [(each.title, each.is_share, each.from_zero) for each in found] == [
        ("loss", False, False),
        ("model FLOP utilization", True, True),
        ("where the time went", True, True),
    ]
    assert list(found[2].lines) == ["steps", "evaluation"]


def test_what_layers_and_others_report_comes_last(tmp_path) -> None:
    values = {"a_converged": 1.0, "loss": 1.0, "peak_memory_mb": 100.0}
    lines = [
        runs.train(1, mine=5.0, **values),
        runs.evaluation(1, **values, steps_per_sec=1.0, flops_per_step=9.0),
    ]
    found, _ = _make(tmp_path, lines)
    titles = [each.title for each in found]
    assert titles == ["loss", "peak memory, MB", "mine", "a_converged"]


def test_there_is_room_for_so_many_charts(tmp_path) -> None:
    values = {f"metric_{i}": 0.5 for i in range(50)}
    found, left_out = _make(tmp_path, [runs.evaluation(1, **values)])
    assert len(found) == 40
    assert left_out == [f"metric_{i}" for i in range(40, 50)]


def test_a_run_without_evaluations_is_judged_by_its_loops(tmp_path) -> None:
    lines = [runs.train(1, accuracy=0.5, loss=1.0, examples_per_sec=5.0)]
    history = history_lib.read(runs.write(tmp_path, lines))
    assert panels.name_metrics(history) == ["loss", "accuracy"]
