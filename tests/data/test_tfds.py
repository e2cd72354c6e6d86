import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from data import DataConfig
from data import tfds as tfds_data
from data.pipeline import prepare
from errors import RequestError
from errors import RunError

IMAGE = tfds.features.Image(shape=(2, 2, 1), encoding_format="png")
DIGIT = tfds.features.ClassLabel(num_classes=20)


def _prepare_folder(
    folder: pathlib.Path,
    features: dict[str, Any],
    splits: dict[str, int],
    supervised_keys: Any = ("x", "y"),
    num_files: int = 1,
) -> DataConfig:
    """Prepares 0, 1, 2, … in every feature; the builder stays unknown."""

    def number(feature: Any, i: int) -> Any:
        if isinstance(feature, tfds.features.Text):
            return str(i)
        shape = [1 if n is None else n for n in feature.shape]
        dtype = np.uint8 if len(shape) == 3 else feature.np_dtype
        return np.full(shape, i, dtype)

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> tfds.core.DatasetInfo:
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(features),
                supervised_keys=supervised_keys,
            )

        def _split_generators(self, manager: Any) -> dict[str, Any]:
            return {
                split: self._generate_examples(count)
                for split, count in splits.items()
            }

        def _generate_examples(self, count: int) -> Any:
            for i in range(count):
                yield i, {k: number(f, i) for k, f in features.items()}

    Tiny(data_dir=folder).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=num_files)
    )
    return DataConfig(
        dataset="tfds:tiny", data_dir=str(folder), global_batch_size=4
    )


def _digits(folder: pathlib.Path, **kwargs: Any) -> DataConfig:
    kwargs.setdefault("splits", {"train": 12, "test": 5})
    return _prepare_folder(folder, {"x": IMAGE, "y": DIGIT}, **kwargs)


def _context(worker: int, num_workers: int) -> tf.distribute.InputContext:
    return tf.distribute.InputContext(num_workers, worker, num_workers)


def _labels(dataset: tf.data.Dataset) -> list[int]:
    return [int(y) for _, labels, _ in dataset for y in labels]


def test_reads_a_prepared_folder_without_its_code(
    tmp_path: pathlib.Path,
) -> None:
    config = _digits(tmp_path)

    info = tfds_data.info(config)
    dataset = prepare.eval_dataset(tfds_data, config, _context(0, 1))

    assert info.task == "classification"
    assert info.num_classes == 20
    assert info.num_examples == {"train": 12, "eval": 5}
    assert info.features == tf.TensorSpec([2, 2, 1], tf.float32)
    assert info.labels == tf.TensorSpec([], tf.int32)
    rows = [
        (features[i], labels[i])
        for features, labels, weights in dataset.as_numpy_iterator()
        for i in range(4)
        if weights[i]
    ]
    assert sorted(label for _, label in rows) == list(range(5))
    for image, label in rows:
        np.testing.assert_allclose(
            image, np.full([2, 2, 1], label / 255), rtol=1e-6
        )


def test_source_leaves_images_encoded(tmp_path: pathlib.Path) -> None:
    config = _digits(tmp_path)

    image, _ = tfds_data.source(config, "train", (0, 1)).element_spec

    assert image == tf.TensorSpec([], tf.string)


def test_order_is_the_same_every_time(tmp_path: pathlib.Path) -> None:
    config = _digits(tmp_path, num_files=3)

    def first() -> list[int]:
        dataset = prepare.train_dataset(
            tfds_data, config, _context(0, 1), seed=1, step=0
        )
        return _labels(dataset.take(6))

    labels = first()

    assert labels == first()
    np.testing.assert_array_equal(
        np.sort(np.reshape(labels, [2, 12])), np.tile(range(12), (2, 1))
    )


@pytest.mark.parametrize(
    ("splits", "sizes"),
    [
        ({"train": 12, "test": 5, "validation": 3}, (12, 5)),
        ({"train": 12, "validation": 3}, (12, 3)),
        ({"train": 20}, (18, 2)),
    ],
    ids=["test", "validation", "neither"],
)
def test_chooses_what_to_evaluate_on(
    tmp_path: pathlib.Path, splits: dict[str, int], sizes: tuple[int, int]
) -> None:
    config = _digits(tmp_path, splits=splits)

    info = tfds_data.info(config)
    parts = [
        [int(label) for _, label in tfds_data.source(config, split, (0, 1))]
        for split in ("train", "eval")
    ]

    assert tuple(info.num_examples.values()) == sizes
    assert tuple(map(len, parts)) == sizes
    if len(splits) == 1:
        assert sorted(parts[0] + parts[1]) == list(range(20))


@pytest.mark.parametrize(
    ("labels", "shape"),
    [
        (tfds.features.Scalar(np.float32), [1]),
        (tfds.features.Scalar(np.int64), [1]),
        (tfds.features.Tensor(shape=(3,), dtype=np.float64), [3]),
    ],
    ids=["scalar", "integer", "vector"],
)
def test_numbers_are_a_regression(
    tmp_path: pathlib.Path, labels: Any, shape: list[int]
) -> None:
    vector = tfds.features.Tensor(shape=(4,), dtype=np.int64)
    config = _prepare_folder(
        tmp_path, {"x": vector, "y": labels}, {"train": 8, "test": 4}
    )

    info = tfds_data.info(config)
    dataset = prepare.eval_dataset(tfds_data, config, _context(0, 1))

    assert info.task == "regression"
    assert info.num_classes == 0
    assert info.labels == tf.TensorSpec(shape, tf.float32)
    assert info.features == tf.TensorSpec([4], tf.int64)
    features, received, _ = next(iter(dataset))
    np.testing.assert_array_equal(features[:, :1], received[:, :1])


def test_files_are_shared_out(tmp_path: pathlib.Path) -> None:
    config = _digits(tmp_path, num_files=3)

    parts = [
        [int(label) for _, label in tfds_data.source(config, "train", (i, 3))]
        for i in range(3)
    ]

    assert all(parts)
    assert sorted(parts[0] + parts[1] + parts[2]) == list(range(12))


def test_rejects_fewer_files_than_workers(tmp_path: pathlib.Path) -> None:
    config = _digits(tmp_path, num_files=2)

    with pytest.raises(
        RequestError, match=r"--shard_by=files.* 2 files for 3 workers"
    ):
        tfds_data.source(config, "train", (0, 3))


@pytest.mark.parametrize(
    ("features", "splits", "keys", "message"),
    [
        ({"x": IMAGE, "y": DIGIT}, {"train": 1}, None, "supervised keys"),
        ({"x": IMAGE, "y": DIGIT}, {"test": 1}, ("x", "y"), "no split train"),
        (
            {"x": tfds.features.Image(shape=(None, 2, 1)), "y": DIGIT},
            {"train": 1},
            ("x", "y"),
            "known shape",
        ),
        (
            {"x": tfds.features.Text(), "y": DIGIT},
            {"train": 1},
            ("x", "y"),
            "known shape",
        ),
    ],
    ids=["not_supervised", "no_train", "shape", "text"],
)
def test_rejects_what_needs_a_module_of_its_own(
    tmp_path: pathlib.Path,
    features: dict[str, Any],
    splits: dict[str, int],
    keys: Any,
    message: str,
) -> None:
    config = _prepare_folder(tmp_path, features, splits, keys)

    with pytest.raises(RequestError, match=f"{message}.*dataset module"):
        tfds_data.info(config)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnistt", "similar names: .*mnist"),
        ("qqqqqqqqqq", "similar names: none"),
        ("mnist:9.9.9", "only: 3.0.1"),
        ("", "following format"),
    ],
    ids=["misspelt", "unknown", "version", "empty"],
)
def test_rejects_unknown_names(
    tmp_path: pathlib.Path, name: str, message: str
) -> None:
    config = DataConfig(dataset=f"tfds:{name}", data_dir=str(tmp_path))

    with pytest.raises(RequestError, match=f"--dataset=tfds:{name}.*{message}"):
        tfds_data.info(config)


def test_rejects_an_unprepared_remote_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Remote:
        data_path = "gs://bucket/mnist/3.0.1"

        def is_prepared(self) -> bool:
            return False

    monkeypatch.setattr(tfds_data.tfds, "builder", lambda *_, **__: Remote())
    config = DataConfig(dataset="tfds:mnist", data_dir="gs://bucket")

    with pytest.raises(RequestError, match=r"--data_dir=gs://bucket.*first"):
        tfds_data.info(config)


def _fetching(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> DataConfig:
    """Asks for a dataset whose preparation raises."""

    class Absent:
        data_path = str(folder / "mnist" / "3.0.1")

        def is_prepared(self) -> bool:
            return False

        def download_and_prepare(self) -> None:
            raise error

    monkeypatch.setattr(tfds_data.tfds, "builder", lambda *_, **__: Absent())
    return DataConfig(dataset="tfds:mnist", data_dir=str(folder), download=True)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            ConnectionError("no\nroute"),
            RunError,
            "mnist: not fetched: no route; try",
        ),
        (OSError(28, "No space left"), RunError, "No space left"),
        (tfds.download.DownloadError("HTTP 404"), RunError, "HTTP 404"),
        (tf.errors.UnavailableError(None, None, "away"), RunError, "away"),
        (
            AssertionError("Manual directory /a is empty. Get it:\nfrom b"),
            RequestError,
            "mnist: Manual directory /a is empty. Get it: from b$",
        ),
        (
            ModuleNotFoundError("No module named 'pandas'"),
            RequestError,
            "No module named 'pandas'; install that package",
        ),
        # A fault of the dataset's own code keeps its traceback.
        (AssertionError("odd"), AssertionError, "^odd$"),
    ],
    ids=["network", "disk", "status", "bucket", "manual", "package", "fault"],
)
def test_what_cannot_be_fetched_is_one_sentence(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: type[Exception],
    message: str,
) -> None:
    config = _fetching(tmp_path, monkeypatch, error)
    with pytest.raises(kind, match=message) as raised:
        tfds_data.info(config)
    assert "\n" not in str(raised.value)


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    error = AssertionError("nothing is fetched")
    config = _fetching(tmp_path / "file", monkeypatch, error)
    with pytest.raises(RequestError, match=r"--data_dir: .*mnist cannot"):
        tfds_data.info(config)


def test_huggingface_is_asked_only_on_demand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(*_: Any, **__: Any) -> None:
        raise ModuleNotFoundError("No module named 'huggingface_hub'")

    monkeypatch.setattr(tfds_data.tfds, "builder", find)
    name = "tfds:huggingface:mnist"
    with pytest.raises(RequestError, match=f"={name}: only with --download"):
        tfds_data.info(DataConfig(dataset=name))
    with pytest.raises(RequestError, match="hub'; install that package"):
        tfds_data.info(DataConfig(dataset=name, download=True))


def test_fetches_nothing_unasked(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Absent:
        data_path = str(tmp_path / "mnist" / "3.0.1")

        def is_prepared(self) -> bool:
            return False

    monkeypatch.setattr(tfds_data.tfds, "builder", lambda *_, **__: Absent())
    config = DataConfig(dataset="tfds:mnist", data_dir=str(tmp_path))

    with pytest.raises(RequestError, match=r"3.0.1; add --download"):
        tfds_data.info(config)
    assert not list(tmp_path.iterdir())


_WORKER = """
import pathlib
import sys
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from data import DataConfig
from data import tfds as tfds_data
from data.pipeline import prepare

folder, log, worker = sys.argv[1:]

class Twenty(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    # A script is no package, in which tfds would look for metadata.
    pkg_dir_path = pathlib.Path(__file__).parent

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict({
                "x": tfds.features.Scalar(np.int64),
                "y": tfds.features.Scalar(np.int64),
            }),
            supervised_keys=("x", "y"),
        )

    def _split_generators(self, manager):
        with open(log, "a") as file:
            file.write("prepared" + chr(10))
        counts = {"train": 20, "test": 1}
        return {k: self._generate_examples(n) for k, n in counts.items()}

    def _generate_examples(self, count):
        for i in range(count):
            yield i, {"x": i, "y": i}

# Both start together: say that this one is ready, wait for the other's word.
print("ready", flush=True)
sys.stdin.readline()
config = DataConfig(
    dataset="tfds:twenty", data_dir=folder, global_batch_size=10, download=True
)
context = tf.distribute.InputContext(2, int(worker), 2)
dataset = prepare.train_dataset(tfds_data, config, context, seed=0, step=0)
print(*[int(y[0]) for _, ys, _ in dataset.take(2) for y in ys])
"""


def test_two_processes_prepare_an_empty_folder_once(
    tmp_path: pathlib.Path,
) -> None:
    script, log = tmp_path / "worker.py", tmp_path / "log"
    script.write_text(_WORKER)
    workers = [
        subprocess.Popen(
            [sys.executable, script, tmp_path / "data", log, worker],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for worker in ("0", "1")
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"

    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    outputs = [worker.communicate(timeout=120)[0] for worker in workers]

    assert [worker.returncode for worker in workers] == [0, 0]
    assert log.read_text().splitlines() == ["prepared"]
    # tensorflow-datasets prints above it.
    lines = [output.splitlines()[-1] for output in outputs]
    rows = [[int(word) for word in line.split()] for line in lines]
    assert [len(numbers) for numbers in rows] == [10, 10]
    assert sorted(rows[0] + rows[1]) == list(range(20))
    versions = tmp_path / "data" / "twenty"
    assert sorted(path.name for path in versions.iterdir()) == [
        ".1.0.0.lock",
        "1.0.0",
    ]
