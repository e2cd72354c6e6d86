"""What must be true before TensorFlow starts, and what many tests share."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# A cluster description of the machine that runs the tests is not ours.
os.environ.pop("TF_CONFIG", None)

import gc
import signal
from collections.abc import Callable
from collections.abc import Iterator

import keras
import pytest
import tensorflow as tf

from rehearsal import child

# A job in the background of a shell ignores it, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Logical devices can be set once per process, before the first use.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 4,
)


def pytest_collection_finish() -> None:
    """Keeps what was imported out of every later garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips rehearsals where the extra `tpu` leaves no room for theirs."""
    if child.is_installed():
        return
    skip = pytest.mark.skip(reason="needs the extra `rehearsal`")
    for item in items:
        if "rehears" in item.nodeid:
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[None]:
    """Skips what asks the wheel `tensorflow-tpu` for XLA on the CPU."""
    try:
        return (yield)
    except (tf.errors.NotFoundError, ValueError) as error:
        if "transfer manager for platform Host" in str(error):
            pytest.skip("tensorflow-tpu has no XLA for the CPU")
        raise


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    # Without the collection of garbage that it makes by default, which takes
    # longer than most tests.
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def strategy_of() -> Callable[[int], tf.distribute.Strategy]:
    """Returns a function: number of replicas → strategy on logical CPUs."""

    def create(num_replicas: int) -> tf.distribute.Strategy:
        if num_replicas == 1:
            return tf.distribute.OneDeviceStrategy("cpu:0")
        # The default reduction breaks once two strategies of different size
        # have run in one process: the collective group keeps its first size.
        return tf.distribute.MirroredStrategy(
            [f"cpu:{i}" for i in range(num_replicas)],
            cross_device_ops=tf.distribute.ReductionToOneDevice(),
        )

    return create
