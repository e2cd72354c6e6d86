"""Which of the rival distributions of TensorFlow the tests run with."""

import importlib.metadata


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


# The one for TPUs compiles for TPUs alone.
HAS_XLA_ON_CPU = not _is_installed("tensorflow-tpu")
