import re

import keras
import tensorflow as tf

from training import origin


def test_versions_are_those_that_run() -> None:
    found = origin.versions()
    assert found["tensorflow"] == tf.__version__
    assert found["keras"] == keras.__version__
    assert re.fullmatch(r"3\.\d+\.\d+\S*", found["python"])


def test_no_git_is_no_error(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert origin.describe_git() == {"commit": None, "dirty": None}
