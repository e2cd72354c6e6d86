"""In what pieces workers send each other tensors.

TensorFlow's servers cut a tensor into pieces of 4 kB, each a string of its own
in the message. In larger pieces the same bytes take less time.
"""

import contextlib
import threading

import tensorflow as tf

# One piece for all is slower again: 3.7 MB took twice as long.
_PIECE_BYTES = 1 << 18


def use_large_pieces() -> None:
    """Sets it for this process; call it before anything touches TensorFlow.

    Afterwards it is too late, and nothing changes.
    """
    config = tf.compat.v1.ConfigProto()
    config.experimental.recv_buf_max_chunk = _PIECE_BYTES
    # The one public way to hand TensorFlow 2 a ConfigProto. What it does to
    # its thread must not stay if it comes too late.
    thread = threading.Thread(target=_enable, args=(config,))
    thread.start()
    thread.join()


def _enable(config: tf.compat.v1.ConfigProto) -> None:
    tf.compat.v1.disable_eager_execution()
    # AttributeError: as TensorFlow 2.21 words the ValueError, it fails.
    with contextlib.suppress(ValueError, AttributeError):
        tf.compat.v1.enable_eager_execution(config=config)
