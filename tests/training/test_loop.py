"""What happens at which step, with stand-ins for the compiled loops."""

import contextlib
import json
import math

import keras
import pytest

from errors import RunError
from training import TrainConfig
from training import checkpoint
from training import checkpoint_writer
from training import loop
from training import state as state_lib
from training.job import Job
from training.job import make_stop


@pytest.fixture
def run(tmp_path, strategy_of, monkeypatch):
    """Returns a function that runs the loop and returns what happened."""
    strategy = strategy_of(1)
    events = []
    pools = []

    class Writer(checkpoint_writer.Writer):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            pools.append(self._pool)

        def save(self, variables, step) -> None:
            events.append(("save", step))
            super().save(variables, step)

    monkeypatch.setattr(checkpoint_writer, "Writer", Writer)

    def run_loop(
        config: TrainConfig,
        *callbacks,
        start=0,
        stale=-1,
        losses=None,
        eval_loss=2.0,
    ):
        events.clear()
        with strategy.scope():
            inputs = keras.Input([1])
            outputs = keras.layers.Dense(1, name="dense")(inputs)
            model = keras.Model(inputs, outputs)
            state = state_lib.create(model, config)
        state.step.assign(start)
        state.stopping.stale.assign(stale)

        def train(num_steps: int) -> dict[str, float]:
            state.step.assign_add(num_steps)
            events.append(("train", num_steps))
            loss = (losses or {}).get(int(state.step.numpy()), 1.0)
            return {
                "loss": loss,
                "accuracy": 0.5,
                "steps_per_sec": 10.0,
                "examples_per_sec": 640.0,
            }

        def evaluate() -> dict[str, float]:
            events.append(("evaluate", int(state.step.numpy())))
            loss = (
                eval_loss if isinstance(eval_loss, float) else next(eval_loss)
            )
            return {"loss": loss, "examples": 9.0}

        class Spy(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs) -> None:
                events.append(("batch_end", batch))

            def on_test_end(self, logs) -> None:
                events.append(("test_end", logs["loss"]))

            def on_epoch_end(self, epoch, logs) -> None:
                shown = {"loss", "val_loss", "val_examples"} & set(logs)
                events.append(("epoch_end", epoch, sorted(shown)))

        job = Job(strategy, state, config, str(tmp_path), make_stop())
        try:
            result = loop.run(job, train, evaluate, [*callbacks, Spy()])
        finally:
            for pool in pools:  # as at the end of a process
                pool.shutdown()
        return list(events), result

    return run_loop


def _config(**values) -> TrainConfig:
    defaults = {
        "train_steps": 10,
        "steps_per_loop": 4,
        "eval_every_steps": 0,
        "checkpoint_every_steps": 0,
    }
    return TrainConfig(**{**defaults, **values})


@pytest.mark.parametrize(
    ("step", "evaluate", "save", "expected"),
    [
        (0, 0, 0, 4),
        (4, 0, 0, 4),
        (8, 0, 0, 2),
        (0, 3, 0, 3),
        (3, 3, 0, 1),
        (0, 0, 2, 2),
        (2, 5, 0, 2),
        (4, 5, 7, 1),
        (5, 5, 7, 2),
    ],
)
def test_inner_loops_end_where_something_is_due(
    step, evaluate, save, expected
) -> None:
    config = _config(eval_every_steps=evaluate, checkpoint_every_steps=save)
    assert loop.steps_to_boundary(step, config) == expected


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 4), (4, 1), (5, 2), (7, 1), (8, 2)]
)
def test_inner_loops_end_where_a_profile_does(step, expected) -> None:
    config = _config(profile="5:7")
    assert loop.steps_to_boundary(step, config) == expected


@pytest.mark.parametrize(
    ("is_chief", "folder"), [(True, "train"), (False, "worker-3")]
)
@pytest.mark.parametrize("loss", [1.0, math.nan], ids=["done", "failed"])
def test_a_profile_of_each_worker_is_its_own_and_ends(
    run, tmp_path, monkeypatch, is_chief, folder, loss
) -> None:
    calls = []
    monkeypatch.setattr(loop.workers, "is_chief", lambda _: is_chief)
    monkeypatch.setattr(loop.workers, "task_name", lambda _: "worker-3")
    profiler = loop.tf.profiler.experimental
    monkeypatch.setattr(profiler, "start", calls.append)
    monkeypatch.setattr(profiler, "stop", lambda: calls.append("stop"))
    with contextlib.suppress(RunError):
        run(_config(profile="4:99@all"), losses={8: loss})
    assert calls == [str(tmp_path / "summaries" / folder), "stop"]


def test_order_at_a_boundary(run) -> None:
    config = _config(
        train_steps=4,
        steps_per_loop=2,
        eval_every_steps=2,
        checkpoint_every_steps=2,
    )
    events, result = run(config)
    logs = ["loss", "val_examples", "val_loss"]
    assert events == [
        ("train", 2),
        ("evaluate", 2),
        ("save", 2),
        ("batch_end", 2),
        ("test_end", 2.0),
        ("epoch_end", 0, logs),
        ("train", 2),
        ("evaluate", 4),
        ("save", 4),
        ("batch_end", 4),
        ("test_end", 2.0),
        ("epoch_end", 1, logs),
    ]
    assert result == {"loss": 2.0, "examples": 9.0}


def test_the_last_step_is_evaluated_and_kept(run, tmp_path) -> None:
    events, _ = run(_config())
    assert [e for e in events if e[0] in ("train", "evaluate")] == [
        ("train", 4),
        ("train", 4),
        ("train", 2),
        ("evaluate", 10),
    ]
    assert checkpoint.list_steps(str(tmp_path)) == [10]


def test_a_finished_run_is_evaluated_only(run, tmp_path) -> None:
    events, result = run(_config(), start=10)
    assert events == [("evaluate", 10)]
    assert result["loss"] == 2.0
    assert not (tmp_path / "metrics.jsonl").exists()


def test_continues_from_the_step_of_the_state(run) -> None:
    events, _ = run(_config(), start=6)
    assert [e[1] for e in events if e[0] == "train"] == [2, 2]


class _StopAt(keras.callbacks.Callback):
    def __init__(self, step: int) -> None:
        super().__init__()
        self._stop = step

    def on_train_batch_end(self, batch, logs) -> None:
        if batch >= self._stop:
            self.model.stop_training = True


def test_a_callback_may_stop_the_run(run, tmp_path) -> None:
    """The step at which it stops is treated like a last one."""
    events, result = run(_config(), _StopAt(4))
    assert [event[0] for event in events] == [
        "train",
        "batch_end",
        "evaluate",
        "test_end",
        "epoch_end",
        "save",
    ]
    assert checkpoint.list_steps(str(tmp_path)) == [4]
    assert checkpoint.list_steps(str(tmp_path), checkpoint.BEST) == [4]
    assert result["loss"] == 2.0


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_stops_on_a_loss_that_is_not_finite(run, tmp_path, loss) -> None:
    config = _config(checkpoint_every_steps=4)
    with pytest.raises(RuntimeError, match="between step 5 and step 8"):
        run(config, losses={8: loss})
    assert checkpoint.list_steps(str(tmp_path)) == [4]
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text.splitlines()[-1])["loss"] is None


def test_stops_on_an_evaluation_that_is_not_finite(run) -> None:
    with pytest.raises(RuntimeError, match="the evaluation loss became nan"):
        run(_config(eval_every_steps=4), eval_loss=math.nan)


def test_one_line_of_metrics_for_each_inner_loop(run, tmp_path) -> None:
    run(_config(eval_every_steps=8))
    text = (tmp_path / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["step"], line["split"]) for line in lines] == [
        (4, "train"),
        (8, "train"),
        (8, "eval"),
        (10, "train"),
        (10, "eval"),
    ]
    shares = ("goodput", "eval_share", "checkpoint_share", "input_wait_share")
    for line in lines:
        if line["split"] == "train":
            assert all(0 <= line[name] <= 1 for name in shares)
    # Of what came before this inner loop.
    assert lines[0]["eval_share"] == 0 < lines[3]["eval_share"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_keras_callbacks_work_without_compile(run, tmp_path, replicas) -> None:
    path = tmp_path / "log.csv"
    config = _config(eval_every_steps=4, learning_rate=0.5)
    run(
        config,
        keras.callbacks.CSVLogger(str(path)),
        keras.callbacks.ReduceLROnPlateau(patience=1, factor=0.5),
        keras.callbacks.ModelCheckpoint(str(tmp_path / "best.keras")),
        keras.callbacks.TerminateOnNaN(),
    )
    assert len(path.read_text().splitlines()) == 4
    assert (tmp_path / "best.keras").exists()


def test_early_stopping_of_keras_stops(run) -> None:
    config = _config(train_steps=100, eval_every_steps=4)
    stopping = keras.callbacks.EarlyStopping(monitor="val_loss", patience=2)
    events, _ = run(config, stopping)
    assert sum(event[0] == "train" for event in events) == 3


def test_the_best_is_kept_apart_with_its_metric(run, tmp_path) -> None:
    values = iter([3.0, 1.0, 2.0])
    config = _config(train_steps=6, steps_per_loop=2, eval_every_steps=2)
    run(config, eval_loss=values)
    assert checkpoint.list_steps(str(tmp_path), checkpoint.BEST) == [4]
    content = json.loads((tmp_path / "best" / "best.json").read_text())
    assert content == {"step": 4, "metric": "loss", "value": 1.0}


def test_stops_when_the_patience_is_used_up(run, tmp_path) -> None:
    """The last step is evaluated and kept; a restart trains no further."""
    config = _config(
        train_steps=100,
        eval_every_steps=4,
        early_stopping="loss:patience=2",
    )
    events, _ = run(config)
    assert sum(event[0] == "train" for event in events) == 3
    assert checkpoint.list_steps(str(tmp_path)) == [12]
    again, result = run(config, start=12, stale=2)
    assert again == [("evaluate", 12)]
    assert result["loss"] == 2.0


def test_metrics_that_cannot_be_written_end_the_run(run, tmp_path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(RunError, match=r"^step 4: metrics.jsonl could not be"):
        run(_config())


def test_metrics_that_cannot_be_written_can_be_gone_past(
    run, tmp_path, capsys
) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    run(_config(checkpoint_errors="continue"))
    assert "step 4: metrics.jsonl could not be" in capsys.readouterr().out
    assert checkpoint.list_steps(str(tmp_path)) == [10]
