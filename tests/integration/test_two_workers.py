"""Two processes on this machine, as two machines would run."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import processes

# Module of a user's: one TFRecord file of the numbers 0..15.
DATASET = """
import tensorflow as tf
from data import DatasetInfo

def info(config):
    spec = tf.TensorSpec([1], tf.float32)
    return DatasetInfo(task="regression", features=spec, labels=spec,
                       num_examples={"train": 16, "eval": 16})

def source(config, split, shard):
    return tf.data.TFRecordDataset(config.data_dir)

def preprocess(config, split, element):
    number = tf.strings.to_number(element)[tf.newaxis]
    return number, number
"""

# Prints, on each worker: the rows of one pass, the golden losses, and how many
# examples an evaluation counted.
PROGRAM = """
import json
import sys
import types
import keras
import numpy as np
import tensorflow as tf
import sixteen_numbers
from data import DataConfig
from data.pipeline import distribute, prepare
from training import TrainConfig
from training import eval_step
from training import state as state_lib, step as step_lib, task as task_lib

strategy = tf.distribute.MultiWorkerMirroredStrategy()
config = DataConfig(dataset="sixteen_numbers", data_dir=sys.argv[1],
                    global_batch_size=8)
iterator = iter(distribute.train_dataset(
    strategy, sixteen_numbers, config, seed=0, step=0))
rows = []
for _ in range(2):
    features, _, _ = next(iterator)
    rows += strategy.experimental_local_results(features)[0].numpy().tolist()

features = np.random.RandomState(0).rand(16, 3).astype(np.float32)
labels = features.sum(axis=1, keepdims=True)
arrays = (features, labels, np.ones(16, np.float32))
dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(8).repeat()
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = (
    tf.data.experimental.AutoShardPolicy.DATA)
iterator = iter(strategy.experimental_distribute_dataset(
    dataset.with_options(options)))
with strategy.scope():
    inputs = keras.Input([3])
    dense = keras.layers.Dense(1, kernel_initializer="zeros", name="dense")
    model = keras.Model(inputs, dense(inputs))
    state = state_lib.create(model, TrainConfig(learning_rate=0.1))
task = task_lib.resolve(types.ModuleType("none"), "regression")
loop = step_lib.make_train_loop(strategy, state, task, 8, TrainConfig())
one = tf.constant(1, tf.int64)
losses = [float(loop(iterator, one)["loss"]) for _ in range(4)]
evaluate = eval_step.make_eval_loop(strategy, model, task)
results = evaluate(iterator, tf.constant(4, tf.int64))
weights = [weight.tolist() for weight in model.get_weights()]
print(json.dumps({"rows": sum(rows, []), "losses": losses,
                  "examples": float(results["examples"]),
                  "weights": weights}))
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("two")
    (folder / "sixteen_numbers.py").write_text(DATASET)
    (folder / "program.py").write_text(PROGRAM)
    with tf.io.TFRecordWriter(str(folder / "numbers.tfrecord")) as writer:
        for number in range(16):
            writer.write(str(number).encode())
    done = processes.run_workers(
        2,
        str(folder / "numbers.tfrecord"),
        program=str(folder / "program.py"),
        env={"PYTHONPATH": f"{processes.ROOT}:{folder}"},
    )
    for worker in done:
        assert worker.returncode == 0, worker.stderr
    return [json.loads(worker.stdout.splitlines()[-1]) for worker in done]


def test_one_file_serves_two_workers(reports) -> None:
    first, second = (report["rows"] for report in reports)
    assert len(first) == len(second) == 8
    assert sorted(first + second) == list(range(16))
    assert sum(first + second) == 120


def test_both_see_the_golden_losses(reports) -> None:
    golden = [3.58139, 1.57163, 1.78756, 0.61830]
    for report in reports:
        np.testing.assert_allclose(report["losses"], golden, atol=1e-5)
    assert reports[0]["weights"] == reports[1]["weights"]


def test_metrics_count_the_examples_of_both(reports) -> None:
    assert [report["examples"] for report in reports] == [32, 32]


FLAGS = (
    "--strategy=multi_worker_mirrored",
    "--model=mlp",
    "--train_steps=20",
    "--checkpoint_every_steps=1",
    "--checkpoints_to_keep=3",
)


def _check_kept(folder: Path) -> None:
    """Three checkpoints of three files each, and nothing temporary."""
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert names == {
        f"step-{step}.{part}"
        for step in (18, 19, 20)
        for part in ("index", "data-00000-of-00001", "json")
    }
    assert not list(folder.rglob("*tmp*")) + list(folder.rglob("*temp*"))


def test_a_shared_folder_belongs_to_the_chief(tmp_path) -> None:
    done = processes.run_workers(2, *FLAGS, f"--model_dir={tmp_path}")
    for worker in done:
        assert worker.returncode == 0, worker.stderr
        assert "2 workers, 2 replicas" in worker.stdout
    ends = [
        line
        for worker in done
        for line in worker.stdout.splitlines()
        if line.startswith("Evaluation at step 20: ")
    ]
    assert len(ends) == 2
    assert ends[0] == ends[1]
    assert "step 1/20" in done[0].stdout
    assert "step 1/20" not in done[1].stdout
    _check_kept(tmp_path)
    # Drawn from what the chief computes alone, while the other goes on.
    (events,) = (tmp_path / "summaries" / "eval").iterdir()
    assert b"predictions/confusion_matrix" in events.read_bytes()
    content = json.loads((tmp_path / "run.json").read_text())
    assert content["strategy"]["workers"] == 2
    reader = tf.train.load_checkpoint(tmp_path / "checkpoints" / "step-20")
    values = reader.get_variable_to_shape_map()
    assert reader.get_tensor("step") == 20
    assert any("hidden" in name or "dense" in name for name in values)


def test_of_two_folders_only_the_chiefs_is_used_and_read(tmp_path) -> None:
    """The second run continues on both, from what the chief's disk holds."""
    for steps, message in ((20, "Starting at step 0"), (22, "at step 20")):
        running = [
            processes.start(
                *FLAGS,
                f"--train_steps={steps}",
                f"--model_dir={tmp_path / str(index)}",
                env={"TF_CONFIG": config},
            )
            for index, config in enumerate(processes.tf_configs(2))
        ]
        done = [processes.finish(process) for process in running]
        for worker in done:
            assert worker.returncode == 0, worker.stderr
            assert f"Evaluation at step {steps}: " in worker.stdout
        assert message in done[0].stdout
    assert not (tmp_path / "1").exists()
    starts = json.loads((tmp_path / "0" / "run.json").read_text())["starts"]
    assert [start["step"] for start in starts] == [0, 20]


def test_workers_with_other_flags_are_refused_together(tmp_path) -> None:
    running = [
        processes.start(
            *FLAGS,
            f"--seed={index}",
            f"--model_dir={tmp_path}",
            env={"TF_CONFIG": config},
        )
        for index, config in enumerate(processes.tf_configs(2))
    ]
    done = [processes.finish(process) for process in running]
    assert [worker.returncode for worker in done] == [2, 2]
    assert "--seed: this worker has 1, the chief has 0" in done[1].stderr
    for worker in done:
        assert "Traceback" not in worker.stderr


def test_both_stop_early_at_the_same_step(tmp_path) -> None:
    """At rate 0 the first evaluation is the best: the third is the last."""
    done = processes.run_workers(
        2,
        "--strategy=multi_worker_mirrored",
        "--model=mlp",
        "--learning_rate=0",
        "--eval_every_steps=2",
        "--early_stopping=accuracy:patience=2",
        f"--model_dir={tmp_path}",
    )
    for worker in done:
        assert worker.returncode == 0, worker.stderr
        assert "Evaluation at step 6: " in worker.stdout
    best = json.loads((tmp_path / "best" / "best.json").read_text())
    assert best["step"] == 2
    assert best["metric"] == "accuracy"
