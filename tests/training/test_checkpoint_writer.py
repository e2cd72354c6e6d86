"""What a save takes, keeps and leaves, and what is said when it cannot."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from errors import RunError
from tests import object_store
from tests import processes
from training import checkpoint
from training import checkpoint_files
from training import checkpoint_writer

Variables = dict[str, tf.Variable]


def _variables(strategy: tf.distribute.Strategy, size: int = 3) -> Variables:
    with strategy.scope():
        return {
            "step": tf.Variable(0, dtype=tf.int64),
            "model/kernel": tf.Variable(tf.ones([size])),
        }


def _kernel(folder: Path, step: int, kept: str = "checkpoints") -> np.ndarray:
    reader = tf.train.load_checkpoint(folder / kept / f"step-{step}")
    return reader.get_tensor("model/kernel")


def _temporary(folder: Path) -> list[Path]:
    return [*folder.rglob("*tmp*"), *folder.rglob("*temp*")]


def _add(kernel: tf.Variable) -> None:
    kernel.assign_add(tf.ones_like(kernel))


def _scatter(kernel: tf.Variable) -> None:
    kernel.scatter_add(tf.IndexedSlices(tf.ones([3]), tf.range(3)))


@pytest.mark.parametrize(
    ("replicas", "jit_compile", "update"),
    [(1, False, _add), (1, True, _add), (1, False, _scatter), (2, False, _add)],
    ids=["one_device", "jit_compile", "sparse", "mirrored"],
)
def test_holds_the_values_of_the_call_while_training_goes_on(
    tmp_path, strategy_of, monkeypatch, replicas, jit_compile, update
) -> None:
    strategy = strategy_of(replicas)
    variables = _variables(strategy)
    kernel = variables["model/kernel"]

    @tf.function(autograph=False, jit_compile=jit_compile)
    def step() -> None:
        strategy.run(update, args=(kernel,))

    go_on = threading.Event()
    monkeypatch.setattr(
        checkpoint_writer, "_check_finite", lambda *_: go_on.wait(60)
    )
    step()
    expected = strategy.experimental_local_results(kernel)[0].numpy()
    writer = checkpoint_writer.Writer(strategy, str(tmp_path), 1)
    writer.save(variables, 1)
    for _ in range(3):
        step()
    assert checkpoint.list_steps(str(tmp_path)) == []
    go_on.set()
    writer.wait()
    np.testing.assert_array_equal(_kernel(tmp_path, 1), expected)
    assert kernel.numpy()[0] == expected[0] + 3 * (expected[0] - 1)


def test_a_save_waits_for_one_of_an_earlier_step_only(
    tmp_path, strategy_of, monkeypatch
) -> None:
    variables = _variables(strategy_of(1))
    writer = checkpoint_writer.Writer(strategy_of(1), str(tmp_path), 2)
    go_on = threading.Event()
    monkeypatch.setattr(
        checkpoint_writer, "_check_finite", lambda *_: go_on.wait(60)
    )
    writer.save_best(variables, {"step": 1, "metric": "loss", "value": 1.0})
    writer.save(variables, 1)  # would never return if it waited
    assert checkpoint.list_steps(str(tmp_path)) == []
    go_on.set()
    writer.save(variables, 2)
    assert checkpoint.list_steps(str(tmp_path), checkpoint.BEST) == [1]
    assert checkpoint.list_steps(str(tmp_path))[:1] == [1]
    writer.wait()
    assert checkpoint.list_steps(str(tmp_path)) == [1, 2]


@pytest.mark.parametrize("keep", [1, 2])
def test_keeps_the_newest_and_none_of_a_past_it_has_left(
    tmp_path, strategy_of, keep
) -> None:
    """Steps after the one written were damaged, and passed over."""
    variables = _variables(strategy_of(1))
    writer = checkpoint_writer.Writer(strategy_of(1), str(tmp_path), keep)
    for step in (8, 9, 100, 10):
        writer.save(variables, step)
    writer.wait()
    assert checkpoint.list_steps(str(tmp_path)) == [8, 9, 10][-keep:]


def test_the_best_replaces_a_best_of_a_later_step(
    tmp_path, strategy_of
) -> None:
    """As after a kill: steps are run again, and another one is the best."""
    variables = _variables(strategy_of(1))
    writer = checkpoint_writer.Writer(strategy_of(1), str(tmp_path), 3)
    for step in (300, 100):
        best = {"step": step, "metric": "loss", "value": 1.0}
        writer.save_best(variables, best)
    writer.wait()
    assert checkpoint.list_steps(str(tmp_path), checkpoint.BEST) == [100]
    text = (tmp_path / "best" / "best.json").read_text()
    assert json.loads(text) == best


def test_a_start_removes_what_a_killed_process_left(
    tmp_path, strategy_of
) -> None:
    for folder in ("checkpoints", "best"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "step-3.tmp.index").touch()
    checkpoint_writer.Writer(strategy_of(1), str(tmp_path), 1)
    assert not _temporary(tmp_path)


@pytest.mark.parametrize("errors", ["stop", "continue"])
def test_what_is_not_finite_is_never_kept(
    tmp_path, strategy_of, errors
) -> None:
    strategy = strategy_of(2)
    variables = _variables(strategy)
    writer = checkpoint_writer.Writer(strategy, str(tmp_path), 1, errors)
    writer.save(variables, 1)
    variables["model/kernel"].assign([1, np.inf, 1])
    writer.save(variables, 2)
    with pytest.raises(RunError, match=r"model/kernel is not finite at step 2"):
        writer.save(variables, 3)
    assert checkpoint.list_steps(str(tmp_path)) == [1]
    writer.wait()  # an error is raised once


# Two workers save a variable that is spread over both; then the chief's disk
# fails, and both stop. The end of the chief waits for what is being written.
PROGRAM = """
import pathlib
import sys
import tensorflow as tf
from errors import RunError
from training import checkpoint_files
from training import checkpoint_writer

strategy = tf.distribute.MultiWorkerMirroredStrategy()
folder = pathlib.Path(sys.argv[1])
with strategy.scope():
    variables = {"model/kernel": tf.Variable(
        [1.0], synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM)}
strategy.run(lambda: variables["model/kernel"].assign([2.0]))
chief = strategy.cluster_resolver.task_id == 0
writer = checkpoint_writer.Writer(strategy, str(folder), 3)
writer.save(variables, 1)
writer.wait()
if chief:
    (folder / "best").touch()
writer.save_best(variables, {"step": 2})
try:
    writer.save(variables, 3)
except RunError as error:
    print(error)
writer.save(variables, 4)
"""


def test_two_workers_save_and_stop_together(tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    folder = tmp_path / "run"
    chief, other = processes.run_workers(
        2,
        str(folder),
        program=str(program),
        env={"PYTHONPATH": str(processes.ROOT)},
    )
    assert chief.returncode == other.returncode == 0, other.stderr
    assert "step 2: the checkpoint could not be written" in chief.stdout
    assert "the chief could not write a checkpoint" in other.stdout
    np.testing.assert_array_equal(_kernel(folder, 1), [4.0])
    assert checkpoint.list_steps(str(folder)) == [1, 4]


def test_an_object_store_takes_the_same_step_again(
    tmp_path, strategy_of, monkeypatch
) -> None:
    strategy = strategy_of(1)
    variables = _variables(strategy)
    store = object_store.make(monkeypatch, tmp_path.name)
    for value in (1.0, 2.0):
        variables["model/kernel"].assign(tf.fill([3], value))
        writer = checkpoint_writer.Writer(strategy, store, 1)
        writer.save(variables, 1)
        writer.wait()
    assert len(tf.io.gfile.listdir(f"{store}/checkpoints")) == 3
    variables["model/kernel"].assign(tf.zeros([3]))
    assert checkpoint.restore(strategy, variables, store) == 1
    np.testing.assert_array_equal(variables["model/kernel"], np.full(3, 2.0))

    def stop(*_: object) -> None:
        raise tf.errors.UnavailableError(None, None, "gone")

    # Killed in the midst of the same step: what is half new counts no longer.
    monkeypatch.setattr(checkpoint_files, "publish", stop)
    writer = checkpoint_writer.Writer(strategy, store, 1)
    writer.save(variables, 1)
    with pytest.raises(RunError, match="gone; there is none before it"):
        writer.wait()
    assert tf.io.gfile.listdir(f"{store}/checkpoints") == []
