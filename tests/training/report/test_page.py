import array

import numpy as np
import pytest

from tests import browser
from tests import object_store
from tests.training.report import runs
from training import metrics_log
from training.report import chart
from training.report import history as history_lib
from training.report import page

PHONE = (390, 844)


def _write(folder: str) -> str:
    page.write(history_lib.read(folder))
    with open(f"{folder}/report.html", encoding="utf-8") as file:
        return file.read()


@pytest.fixture
def _blank(monkeypatch) -> None:
    """Draws nothing, where that is not what is looked at."""
    monkeypatch.setattr(chart, "draw", lambda *_: "<svg></svg>")


def test_shows_what_a_person_asks_for(tmp_path) -> None:
    text = _write(runs.write(tmp_path / "a"))
    assert "<title>a</title>" in text
    assert '<meta name="viewport"' in text
    assert text.count("<svg") == 3
    assert "best 1.25 at step 20" in text
    assert "mlp on digits" in text
    assert "train 0.5 · not finite: 1, from step 30 · eval 1.5" in text
    changed, _, defaults = text.partition("<summary>The defaults</summary>")
    assert "<td>--seed</td><td>3</td>" in changed
    assert "<td>--train_steps</td><td>40</td>" in defaults
    assert "with changes" in text
    assert "from step 20" in text


def test_the_same_files_give_the_same_page(tmp_path) -> None:
    folder = runs.write(tmp_path)
    assert _write(folder) == _write(folder)


def test_has_no_script_and_names_no_other_file(tmp_path) -> None:
    text = _write(runs.write(tmp_path))
    assert "<script" not in text
    assert "src=" not in text
    assert "url(" not in text.replace("url(#", "")
    addresses = text.count("http") - text.count("http://www.w3.org/")
    assert addresses == 0


@pytest.mark.usefixtures("_blank")
def test_links_to_what_is_there(tmp_path) -> None:
    folder = runs.write(tmp_path)
    for step in (20, 40):
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        (tmp_path / "checkpoints" / f"step-{step}.json").write_text("{}")
    (tmp_path / "train.log").write_text("")
    text = _write(folder)
    assert '<a href="checkpoints/">checkpoints/</a></td><td>step 20, 40' in text
    for name in ("train.log", "metrics.jsonl", "run.json"):
        assert f'<a href="{name}">' in text
    assert "best/" not in text
    assert "export/" not in text


@pytest.mark.usefixtures("_blank")
def test_links_to_an_export_that_is_asked_for(tmp_path) -> None:
    record = runs.RECORD | {"config": {"train": {"export": "keras"}}}
    assert '<a href="export/">' in _write(runs.write(tmp_path, record=record))


def test_names_from_files_are_escaped(tmp_path) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    line = runs.evaluation(1, **{nasty: 1.0})
    record = {"config": {nasty: {nasty: nasty}}, "versions": {nasty: nasty}}
    text = _write(runs.write(tmp_path / "<img>", [line], record))
    assert "<img" not in text


@pytest.mark.usefixtures("_blank")
@pytest.mark.parametrize("record", [None, {}])
def test_a_run_without_a_record(tmp_path, record) -> None:
    text = _write(runs.write(tmp_path, record=record))
    assert text.count("run.json is not there or cannot be read") == 2


@pytest.mark.usefixtures("_blank")
def test_a_record_without_flags_shows_all_values(tmp_path) -> None:
    record = {k: v for k, v in runs.RECORD.items() if k != "flags"}
    text = _write(runs.write(tmp_path, record=record))
    assert "<details open><summary>All values</summary>" in text


@pytest.mark.usefixtures("_blank")
def test_numbers_of_the_loop_in_short(tmp_path) -> None:
    lines = [
        runs.train(
            step,
            goodput=goodput,
            peak_memory_mb=memory,
            mfu=0.5,
            flops_per_step=5e6,
        )
        for step, goodput, memory in [(1, 0.9, 2000.0), (2, 0.8, 1000.0)]
    ]
    text = _write(runs.write(tmp_path, lines))
    for value in ("80 %", "2,000", "50 %", "5M"):
        assert f"<b>{value}</b>" in text


@pytest.mark.usefixtures("_blank")
def test_what_is_left_of_the_time_is_told(tmp_path) -> None:
    shares = {
        "goodput": 0.5,
        "input_wait_share": 0.125,
        "eval_share": 0.125,
        "checkpoint_share": 0.05,
    }
    text = _write(runs.write(tmp_path, [runs.train(1, **shares)]))
    assert "checkpoints 5 % · rest 20 %" in text


@pytest.mark.usefixtures("_blank")
def test_more_metrics_than_there_is_room_for_are_named(tmp_path) -> None:
    values = {f"metric_{i}": 0.5 for i in range(42)}
    text = _write(runs.write(tmp_path, [runs.evaluation(1, **values)]))
    assert "2 more are in metrics.jsonl: metric_40,metric_41" in text
    assert text.count("<svg>") == 40


def test_a_million_lines_give_less_than_a_megabyte(tmp_path) -> None:
    history = history_lib.History(str(tmp_path))
    steps = array.array("q", range(1_000_000))
    random = np.random.default_rng(0)
    for name in ("loss", "accuracy", "learning_rate", "gradient_norm"):
        values = array.array("d", random.normal(size=len(steps)).tobytes())
        column = history_lib.Column(steps, values)
        history.columns |= {("train", name): column, ("eval", name): column}
    text = page.render(history, runs.RECORD, {})
    assert text.count("<svg") == 4
    assert 30_000 < len(text.encode()) < 1_000_000


def test_an_object_store_has_its_page(tmp_path, monkeypatch) -> None:
    store = object_store.make(monkeypatch, tmp_path.name)
    metrics_log.append(store, 10, "eval", {"loss": 2.0})
    path = page.write(history_lib.read(store))
    assert path == f"{store}/report.html"
    assert "best 2 at step 10" in object_store.read(path)


def test_a_phone_shows_it_without_network_or_scrolling(tmp_path) -> None:
    values = {"a_metric_with_quite_a_long_name_for_a_phone": 1.0, "loss": 1.0}
    record = runs.RECORD | {"command": ["x" * 500], "versions": {"y": "z" * 99}}
    lines = [runs.evaluation(step, **values) for step in (1, 2, 3)]
    folder = runs.write(tmp_path / ("run-" * 30), lines, record)
    path = page.write(history_lib.read(folder))
    with browser.start(tmp_path / "browser") as tab:
        tab.open(path, *PHONE)
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
        # A chart is as wide as the page, so that its text can be read.
        wide = "document.querySelector('svg').getBoundingClientRect().width"
        assert 340 < tab.evaluate(wide) <= 390
        urls = [
            each["request"]["url"]
            for each in tab.told("Network.requestWillBeSent")
        ]
        assert len(urls) == 1, urls
        assert urls[0].endswith("/report.html")
        for trouble in (
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
        ):
            assert not tab.told(trouble)
