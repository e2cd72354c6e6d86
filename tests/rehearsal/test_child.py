"""How the child process is started, and how its end is told."""

import importlib.util
import json
from typing import Any

import numpy as np
import pytest

from errors import RequestError
from errors import RunError
from rehearsal import child


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            ["jax", "jaxlib", "libtpu"],
            "A rehearsal needs jax and libtpu, and jax and jaxlib and libtpu "
            "are not installed; run `pip install -e .[rehearsal]`.",
        ),
        (
            ["libtpu"],
            "A rehearsal needs jax and libtpu, and libtpu is not installed; "
            "run `pip install -e .[rehearsal]`.",
        ),
        (
            ["jax", "jaxlib"],
            "A rehearsal needs jax and libtpu, and jax and jaxlib are not "
            "installed; run `pip install -e .[rehearsal]` in an environment "
            "without the extra `tpu`.",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_what_is_missing_is_named(
    missing: set[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name in missing else find_spec(name),
    )
    with pytest.raises(RequestError) as caught:
        child.check_installed()
    assert str(caught.value) == message


def test_nothing_is_missing_here() -> None:
    child.check_installed()


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        ("", "the child ended without a word."),
        (
            "I1130 16:08:12.698805 69 a.cc:1] hello\n"
            "Traceback (most recent call last):\n  File ...\n"
            "KeyError: 'module'\n"
            "W1130 16:08:12.698805 69 a.cc:1] bye\n",
            "KeyError: 'module'",
        ),
        (
            "F1130 16:09:07.110606   7784 a.h:803] Check failed: no tuple\n"
            "*** Check failure stack trace: ***\n"
            "    @     0x7f4c02a9bc54  absl::SendToLog()\n"
            "https://symbolize.example/r/?trace=7f4c\n",
            "XLA gave up: Check failed: no tuple",
        ),
    ],
    ids=["silent", "traceback", "check"],
)
def test_reason(stderr: str, line: str) -> None:
    assert child.reason(stderr) == line


REQUEST: dict[str, Any] = {
    "kind": "execute",
    "module": "module @m { func.func public @main() { return } }",
    "num_replicas": 1,
    "num_partitions": 1,
    "num_inputs": 0,
    "steps": 0,
}


def test_the_parents_environment_does_not_disturb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {}}))
    # Either would end the child.
    monkeypatch.setenv("XLA_FLAGS", "--no_such_flag=1")
    monkeypatch.setenv("JAX_PLATFORMS", "no_such_platform")
    reply, arrays = child.run(REQUEST, {"state/0": np.ones(2)}, 60)
    assert reply["replica_differences"] == [0]
    np.testing.assert_array_equal(arrays["state/0"], np.ones(2))


def test_a_fault_of_the_child_is_one_line() -> None:
    with pytest.raises(RunError) as caught:
        child.run({**REQUEST, "module": "no module"}, {}, 60)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("rehearsal: ")


def test_a_child_that_does_not_end_is_ended() -> None:
    with pytest.raises(RunError, match=r"did not end within 0\.01 s"):
        child.run(REQUEST, {}, 0.01)
