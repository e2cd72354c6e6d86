"""Settings of Keras and TensorFlow that hold for the whole process."""

import keras
import tensorflow as tf

from training import RunConfig


def configure(run: RunConfig, dtype_policy: str, run_eagerly: bool) -> None:
    """Makes the process fresh and seeded; call it after the strategy exists.

    Args:
        run: Its seed and determinism.
        dtype_policy: What layers follow unless told otherwise.
        run_eagerly: Whether compiled functions run line by line instead.
    """
    # A second run in one process must see the names of the first.
    restart_names()
    keras.utils.set_random_seed(run.seed)
    keras.config.set_dtype_policy(dtype_policy)
    tf.config.run_functions_eagerly(run_eagerly)
    if run.deterministic:
        tf.config.experimental.enable_op_determinism()


def restart_names() -> None:
    """Lets automatic layer names start from the first again.

    They count up within a process, and weights are found by name.
    """
    policy = keras.config.dtype_policy()
    # To collect the garbage as well would walk all of TensorFlow, for 0.2 s.
    keras.utils.clear_session(free_memory=False)
    keras.config.set_dtype_policy(policy)
