import subprocess
import sys

import pytest
import tensorflow as tf

from strategies.cluster import transfer

# In a process of its own: TensorFlow is configured once. What the servers of
# workers are given is not public.
_PROGRAM = """
import tensorflow as tf
{before}
from strategies.cluster import transfer
transfer.use_large_pieces()
from tensorflow.python.eager import context
print(context.context().config.experimental.recv_buf_max_chunk)
print(float(tf.function(lambda x: x + 1)(tf.constant(1.0)).numpy()))
"""


@pytest.mark.parametrize(
    ("before", "size"),
    [("", 1 << 18), ("tf.config.list_logical_devices()", 0)],
    ids=["in_time", "too_late"],
)
def test_reaches_tensorflow(before, size) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(before=before)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(size), "2.0"]


def test_too_late_changes_nothing() -> None:
    transfer.use_large_pieces()
    assert tf.executing_eagerly()
    assert float(tf.constant(1.0)) == 1
