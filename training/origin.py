"""What a run was made with: versions and commit."""

import os
import platform
import subprocess
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def versions() -> dict[str, str]:
    """Returns those of what decides the numbers."""
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
    }


def describe_git() -> dict[str, Any]:
    """Returns commit and dirtiness of the checkout; nulls without git."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", root, *words],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    status = git("status", "--porcelain")
    return {
        "commit": git("rev-parse", "HEAD"),
        "dirty": None if status is None else bool(status),
    }
