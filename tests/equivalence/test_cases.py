"""What goes wrong most often elsewhere, with accumulation, clipping, averages.

Each on 1, 2 and 4 replicas in this process, and on two workers.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import processes
from tests.equivalence import by_hand

PLACES = {"one_device": 1, "mirrored-2": 2, "mirrored-4": 4, "workers-2": 2}
each_place = pytest.mark.parametrize("place", PLACES)


@pytest.fixture(scope="module")
def workers() -> list[dict]:
    done = processes.run_workers(
        2,
        "tests.equivalence.by_hand",
        program="-m",
        env={"KERAS_BACKEND": "tensorflow"},
    )
    for worker in done:
        assert worker.returncode == 0, worker.stderr
    return [json.loads(worker.stdout.splitlines()[-1]) for worker in done]


@pytest.fixture
def results_in(strategy_of, request):
    def results(place: str) -> list[dict]:
        if place == "workers-2":
            return request.getfixturevalue("workers")
        return [by_hand.all_results(strategy_of(PLACES[place]))]

    return results


@each_place
def test_steps_are_those_computed_by_hand(results_in, place) -> None:
    for results in results_in(place):
        assert results["data"] == pytest.approx(
            {"weight": 2.5, "average": 1.25, "loss": 0.0}
        )
        assert results["penalty"] == pytest.approx(
            {"weight": 0.0, "average": 0.5, "loss": 0.5}
        )
        assert results["joined"] == pytest.approx(
            {"weight": -1.5, "average": -0.25, "loss": 2.5}
        )
        golden = [3.58139, 1.57163, 1.78756, 0.61830]
        np.testing.assert_allclose(results["golden"], golden, atol=1e-5)


def test_workers_agree_bit_for_bit(workers) -> None:
    assert workers[0] == workers[1]


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("dtype_policy", ["float32", "mixed_float16"])
def test_no_nan_for_any_number_of_examples(
    strategy_of, replicas, dtype_policy
) -> None:
    """Rows of padding, of which whole micro-batches may consist."""
    keras.config.set_dtype_policy(dtype_policy)
    run, state = by_hand.make_padded(strategy_of(replicas))
    for examples in (1, 3, 5, 8, 0):
        assert np.isfinite(run(examples)), examples
    assert all(np.all(np.isfinite(w)) for w in state.model.get_weights())
    assert state.optimizer.iterations.numpy() == 5


# Module of a user's: two files of 20 and 12 numbers; a worker reads one.
UNEVEN = """
import tensorflow as tf
from data import DatasetInfo

def info(config):
    spec = tf.TensorSpec([1], tf.float32)
    return DatasetInfo(task="regression", features=spec, labels=spec,
                       num_examples={"train": 32, "eval": 32})

def source(config, split, shard):
    first, count = shard
    files = [f"{config.data_dir}/{i}.tfrecord" for i in range(2)]
    return tf.data.TFRecordDataset(files[first::count])

def preprocess(config, split, element):
    number = tf.strings.to_number(element)[tf.newaxis] / 32
    return number, number
"""


def test_workers_with_unequal_files_end_together(tmp_path) -> None:
    """Ten batches of 8, more than either has: it begins again, by itself."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "uneven.py").write_text(UNEVEN)
    for index, numbers in enumerate((range(20), range(20, 32))):
        path = str(tmp_path / f"{index}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for number in numbers:
                writer.write(str(number).encode())
    done = processes.run_workers(
        2,
        "--strategy=multi_worker_mirrored",
        "--dataset=lib.uneven",
        f"--data_dir={tmp_path}",
        "--shard_by=files",
        "--global_batch_size=8",
        "--model=mlp",
        "--dtype_policy=mixed_float16",
        *(f"--{name}={value}" for name, value in by_hand.OPTIONS.items()),
        "--train_steps=10",
        "--steps_per_loop=1",
        f"--model_dir={tmp_path / 'run'}",
        env={"PYTHONPATH": str(tmp_path)},
    )
    for worker in done:
        assert worker.returncode == 0, worker.stderr
        assert "Evaluation at step 10: " in worker.stdout
    losses = processes.losses(tmp_path / "run")
    assert len(losses) == 10
    assert all(np.isfinite(losses))
    (evaluation,) = processes.read_metrics(tmp_path / "run", "eval")
    assert evaluation["examples"] == 32
