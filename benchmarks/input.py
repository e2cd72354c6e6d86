"""Does input keep up, and what do order, shuffle and padding cost?

    python -m benchmarks.input --json=input.json

Each dataset alone, batches of 128 as they reach the step, against what the
bare step of the CNN eats. `tfds` reads 28×28 images from TFRecord files that
tensorflow-datasets wrote here; nothing is downloaded. `tfrecord` and `images`
read the same as plain files.

    order     which example is at which step, of a set whose examples are one
              number each: what remains is the pipeline's own work
    shuffle   the same of a set that can only be read in its order
    padding   the same for an evaluation
"""

import dataclasses
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks import _command
from benchmarks import _contest
from benchmarks import _images
from benchmarks import _pairs
from data import DataConfig
from data import DatasetInfo
from data.pipeline import prepare
from flags import registry

BATCH = _contest.DATA.global_batch_size
CNN = _contest.Contest("cnn")
DATASETS = (
    "digits",
    "synthetic",
    "linear_systems",
    "tfds",
    "tfrecord",
    "images",
    "text",
)
_CONTEXT = tf.distribute.InputContext()


def measure(
    name: str,
    folder: Path,
    cnn: Callable[[], float],
    seconds: float,
    pairs: int,
) -> dict[str, float]:
    """Returns examples/s of a dataset, and how many CNNs they would feed."""
    if name == "tfds":
        config = _images.write(folder)
    elif name in ("images", "tfrecord"):
        config = _images.write_files(folder, name)
    else:
        config = DataConfig(dataset=name)
    config = dataclasses.replace(config, global_batch_size=BATCH)
    module = registry.load("data", name, "dataset")
    dataset = prepare.train_dataset(module, config, _CONTEXT, seed=0, step=0)
    rate, _, ratio = _pairs.compare(reading(dataset, seconds), cnn, pairs)
    return {
        "examples_per_sec": rate * BATCH,
        "vs_cnn": ratio.median,
        "vs_cnn_low": ratio.low,
        "vs_cnn_high": ratio.high,
    }


def measure_order(
    cnn: Callable[[], float], seconds: float, pairs: int, examples: int
) -> dict[str, float]:
    """Returns the shares of the CNN's step that the pipeline itself takes."""
    config = DataConfig(global_batch_size=BATCH)
    by_index, in_order = _numbers(examples)
    train = [
        prepare.train_dataset(module, config, _CONTEXT, seed=0, step=0)
        for module in (by_index, in_order)
    ]
    evaluation = prepare.eval_dataset(by_index, config, _CONTEXT).repeat()
    shares = {}
    datasets = (train[0], train[1], evaluation)
    for name, dataset in zip(
        ("order", "shuffle", "padding"), datasets, strict=True
    ):
        # The CNN's rate ÷ the dataset's is the dataset's share of its step.
        _, _, ratio = _pairs.compare(cnn, reading(dataset, seconds), pairs)
        shares[name] = ratio.median
    # A run has one of the first two.
    total = max(shares["order"], shares["shuffle"]) + shares["padding"]
    return {f"{name}.share": share for name, share in shares.items()} | {
        "order_share": total
    }


def reading(dataset: tf.data.Dataset, seconds: float) -> Callable[[], float]:
    """Returns a function that reads batches; it returns batches/s.

    In one compiled call, as a loop of steps reads them: Python would take
    longer than most of these.
    """

    @tf.function(autograph=False)
    def read(iterator: tf.data.Iterator, count: tf.Tensor) -> tf.Tensor:
        def body(done: tf.Tensor, rows: tf.Tensor) -> list[tf.Tensor]:
            weights = iterator.get_next()[-1]
            return [done + 1, rows + tf.shape(weights)[0]]

        return tf.while_loop(
            lambda done, rows: done < count,
            body,
            [tf.zeros_like(count), tf.constant(0)],
            parallel_iterations=1,
        )[1]

    iterator = iter(dataset)

    def rate() -> float:
        batches, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            batches += int(read(iterator, tf.constant(100))) // BATCH
        return batches / (time.perf_counter() - start)

    return rate


def _numbers(examples: int) -> list[types.ModuleType]:
    """Returns two modules of `examples` numbers: by index, and in order."""
    info = DatasetInfo(
        task="regression",
        num_examples={"train": examples, "eval": examples // 8 + 1},
        features=tf.TensorSpec([1], tf.float32),
        labels=tf.TensorSpec([1], tf.float32),
    )
    values = np.zeros([examples, 1], np.float32)

    def arrays(config: DataConfig, split: str) -> tuple[np.ndarray, np.ndarray]:
        rows = values[: info.num_examples[split]]
        return rows, rows

    def source(
        config: DataConfig, split: str, shard: tuple[int, int]
    ) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(arrays(config, split))

    modules = []
    for function in (arrays, source):
        module = types.ModuleType("numbers")
        vars(module).update({"info": lambda config: info})
        setattr(module, function.__name__, function)
        modules.append(module)
    return modules


def main() -> None:
    """Measures all datasets, prints a table, writes JSON if asked to."""
    parser = _command.pairs_parser(__doc__)
    parser.add_argument("--examples", type=int, default=100_000)
    arguments = parser.parse_args()
    seconds, pairs = arguments.seconds, arguments.pairs
    _, bare = _contest.ours_and_bare(CNN)
    figures: dict[str, float] = {}
    print(f"{'dataset':<16} {'examples/s':>11} {'÷ CNN':>8}  90 %")
    for name in DATASETS:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(
                name, Path(folder), lambda: bare(seconds), seconds, pairs
            )
        print(
            f"{name:<16} {found['examples_per_sec']:>11,.0f} "
            f"{found['vs_cnn']:>8.1f}  "
            f"{found['vs_cnn_low']:.1f}-{found['vs_cnn_high']:.1f}",
            flush=True,
        )
        figures |= {
            f"input.{name}.{key}": value for key, value in found.items()
        }
    shares = measure_order(
        lambda: bare(seconds), seconds, pairs, arguments.examples
    )
    print("shares of the CNN's step")
    for name, share in shares.items():
        print(f"{name:<16} {share:>11.4f}")
        figures[f"input.{name}"] = share
    _command.write(arguments.json, figures)


if __name__ == "__main__":
    main()
