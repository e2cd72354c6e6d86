import json
import re

import keras
import pytest

from errors import RequestError
from errors import RunError
from flags import command_line
from training import checkpoint
from training import record


def _config(model_dir="", mode="train", **changes):
    config = command_line.as_dict(command_line.Configs())
    config["run"] |= {"model_dir": str(model_dir), "mode": mode}
    for group in config.values():
        group |= {k: v for k, v in changes.items() if k in group}
    return config


def _model() -> keras.Model:
    inputs = keras.Input([2])
    return keras.Model(inputs, keras.layers.Dense(3)(inputs))


def _begin(strategy, model_dir, config, step=0) -> dict:
    flags = ("--seed=3",)
    record.begin(strategy, str(model_dir), config, _model(), step, flags)
    return json.loads((model_dir / "run.json").read_text())


def _with_checkpoint(monkeypatch) -> None:
    monkeypatch.setattr(checkpoint, "list_steps", lambda model_dir: [5])


@pytest.mark.parametrize("replicas", [1, 2])
def test_run_json_says_what_ran_where(tmp_path, strategy_of, replicas) -> None:
    config = _config(tmp_path, strategy="mirrored")
    content = _begin(strategy_of(replicas), tmp_path, config)
    assert content["strategy"]["name"] == "mirrored"
    assert content["strategy"]["replicas"] == replicas
    assert content["strategy"]["workers"] == 1
    assert len(content["strategy"]["devices"]) == replicas
    assert content["batch"] == {"global": 64, "per_replica": 64 // replicas}
    assert content["parameters"] == 9
    assert set(content["versions"]) == {
        "python",
        "tensorflow",
        "keras",
        "numpy",
    }
    assert content["config"]["train"]["train_steps"] == 1500
    assert content["flags"] == ["--seed=3"]
    assert content["starts"][0]["step"] == 0
    assert set(content["git"]) == {"commit", "dirty"}
    assert not content["order_depends_on_workers"]


def test_every_start_is_noted(tmp_path, strategy_of) -> None:
    strategy = strategy_of(1)
    _begin(strategy, tmp_path, _config(tmp_path))
    second = _begin(strategy, tmp_path, _config(tmp_path), step=40)
    assert [start["step"] for start in second["starts"]] == [0, 40]


def test_a_new_folder_is_made_and_named(
    tmp_path, strategy_of, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = _config(dataset="tfds:mnist/plain")
    paths = {record.open_run(strategy_of(1), config) for _ in range(3)}
    assert len(paths) == 3
    for path in paths:
        assert re.match(r"runs/equilibrium-tfds_mnist_plain-\d{8}-", path)
        assert (tmp_path / path).is_dir()


def test_nothing_to_continue_without_a_checkpoint(
    tmp_path, strategy_of
) -> None:
    strategy = strategy_of(1)
    _begin(strategy, tmp_path, _config(tmp_path))
    other = _config(tmp_path, seed=9)
    assert record.open_run(strategy, other) == str(tmp_path)
    # That start is not forgotten.
    assert len(_begin(strategy, tmp_path, other)["starts"]) == 2


def test_checkpoints_of_unknown_origin_are_refused(
    tmp_path, strategy_of, monkeypatch
) -> None:
    _with_checkpoint(monkeypatch)
    with pytest.raises(RequestError, match=r"no run\.json"):
        record.open_run(strategy_of(1), _config(tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 9},
        {"global_batch_size": 128},
        {"model": "cnn"},
        {"model_options": ("units=3",)},
        {"initial_model": "a.keras:freeze=conv_*"},
        {"dataset": "synthetic"},
        {"class_weights": "balanced"},
        {"augmentation": "flip_and_shift"},
        {"dtype_policy": "float64"},
        {"optimizer": "sgd"},
        {"learning_rate_schedule": "cosine"},
    ],
    ids=str,
)
def test_another_run_is_refused_naming_both_values(
    tmp_path, strategy_of, monkeypatch, changes
) -> None:
    strategy = strategy_of(1)
    before = _config(tmp_path)
    _begin(strategy, tmp_path, before)
    _with_checkpoint(monkeypatch)
    (name, value) = next(iter(changes.items()))
    old = next(group[name] for group in before.values() if name in group)
    new_word, old_word = (
        ",".join(word) if isinstance(word, tuple) else str(word)
        for word in (value, old)
    )
    message = re.escape(f"--{name}={new_word}: the run to continue has ")
    with pytest.raises(RequestError, match=f"{message}{old_word}"):
        record.open_run(strategy, _config(tmp_path, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"train_steps": 3000},
        {"learning_rate": 0.5},
        {"strategy": "mirrored"},
        {"callbacks": ()},
    ],
    ids=str,
)
def test_what_may_change_may_change(
    tmp_path, strategy_of, monkeypatch, changes
) -> None:
    strategy = strategy_of(1)
    _begin(strategy, tmp_path, _config(tmp_path))
    _with_checkpoint(monkeypatch)
    config = _config(tmp_path, **changes)
    assert record.open_run(strategy, config) == str(tmp_path)


def test_a_run_from_before_there_was_a_flag_goes_on(
    tmp_path, strategy_of, monkeypatch
) -> None:
    strategy, config = strategy_of(1), _config(tmp_path)
    before = {**config, "data": {**config["data"]}}
    del before["data"]["class_weights"]
    _begin(strategy, tmp_path, before)
    _with_checkpoint(monkeypatch)
    assert record.open_run(strategy, config) == str(tmp_path)


def test_a_decaying_schedule_keeps_its_end(
    tmp_path, strategy_of, monkeypatch
) -> None:
    strategy = strategy_of(1)
    schedule = {"learning_rate_schedule": "cosine"}
    _begin(strategy, tmp_path, _config(tmp_path, **schedule))
    _with_checkpoint(monkeypatch)
    record.open_run(strategy, _config(tmp_path, **schedule))
    longer = _config(tmp_path, train_steps=3000, **schedule)
    with pytest.raises(RequestError, match=r"--train_steps=3000.* has 1500"):
        record.open_run(strategy, longer)


def test_evaluation_needs_a_checkpoint_and_no_equal_flags(
    tmp_path, strategy_of, monkeypatch
) -> None:
    strategy = strategy_of(1)
    config = _config(tmp_path, mode="evaluate", global_batch_size=48)
    with pytest.raises(RequestError, match="no checkpoint to evaluate"):
        record.open_run(strategy, config)
    _begin(strategy, tmp_path, _config(tmp_path))
    _with_checkpoint(monkeypatch)
    assert record.open_run(strategy, config) == str(tmp_path)


def test_an_unreadable_record_is_refused(
    tmp_path, strategy_of, monkeypatch
) -> None:
    _with_checkpoint(monkeypatch)
    for text in ("{torn", "{}", "[]"):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(RequestError, match=r"run\.json is none of ours"):
            record.open_run(strategy_of(1), _config(tmp_path))


def test_the_end_is_noted_until_the_next_start(tmp_path, strategy_of) -> None:
    begin = (strategy_of(1), str(tmp_path), _config(tmp_path), _model())
    assert not record.has_ended(str(tmp_path))
    content = record.begin(*begin, 0)
    assert not record.has_ended(str(tmp_path))
    record.end(str(tmp_path), content, 40)
    assert record.has_ended(str(tmp_path))
    ended = json.loads((tmp_path / "run.json").read_text())
    assert ended["ended"]["step"] == 40
    assert ended["starts"] == content["starts"]
    record.begin(*begin, 40)
    assert not record.has_ended(str(tmp_path))


def test_who_is_not_chief_notes_no_end(tmp_path) -> None:
    record.end(str(tmp_path), {}, 40)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path, strategy_of
) -> None:
    (tmp_path / "run.json.tmp").mkdir()
    with pytest.raises(RunError, match=f"^--model_dir={tmp_path}: cannot be"):
        _begin(strategy_of(1), tmp_path, _config(tmp_path))
