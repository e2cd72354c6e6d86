import os
import subprocess
import sys

import pytest

from tests import processes
from training import native_log

NOTES = (
    "WARNING: All log messages before absl::InitializeLog() is called are "
    "written to STDERR",
    "I0000 00:00:1.5 1 port.cc:153] oneDNN custom operations are on.",
    "E0000 00:00:1.5 1 cuda_platform.cc:52] failed call to cuInit: INTERNAL: "
    "CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
    "E0000 00:00:1.5 1 util.cc:131] oneDNN supports DT_INT64 only on "
    "platforms with AVX-512.",
)
ERRORS = (
    "E0000 00:00:1.5 1 cuda_platform.cc:52] failed call to cuInit: "
    "CUDA_ERROR_NO_DEVICE (100)",
    "F0000 00:00:1.5 1 check.cc:7] Check failed: fine",
    "W0000 00:00:1.5 1 a.cc:7] The worker \xff is gone",
)
# Says it as C++ does, and dies as C++ does.
PROGRAM = """
import os, sys
from training import native_log
native_log.drop_notes()
os.write(2, sys.argv[1].encode("latin-1"))
print("from Python", file=sys.stderr)
os.abort()
"""


def _fail(*_: object, **__: object) -> None:
    raise OSError("none is left")


def _run(**env: str) -> list[str]:
    text = "".join(f"{line}\n" for line in NOTES + ERRORS)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, text],
        cwd=processes.ROOT,
        env={**os.environ, **env},
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode < 0
    return done.stderr.decode("latin-1").splitlines()


def test_errors_outlive_a_crash_and_notes_are_dropped() -> None:
    lines = _run(TF_CPP_MIN_LOG_LEVEL="2")
    assert sorted(lines) == sorted([*ERRORS, "from Python"])


@pytest.mark.parametrize(
    "env", [{"TF_CPP_MIN_LOG_LEVEL": "0"}, {"PATH": ""}], ids=["asked", "grep"]
)
def test_all_lines_stay(env) -> None:
    assert _run(**env) == [*NOTES, *ERRORS, "from Python"]


def test_process_1_would_end_all_others(monkeypatch) -> None:
    started = []
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(subprocess, "Popen", started.append)
    native_log.drop_notes()
    assert not started


@pytest.mark.parametrize(
    ("module", "name"), [(os, "dup"), (subprocess, "Popen")]
)
def test_without_a_stderr_or_a_process_all_stays(
    monkeypatch, module, name
) -> None:
    stderr = sys.stderr
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setattr(module, name, _fail)
    native_log.drop_notes()
    assert sys.stderr is stderr


def test_python_has_nothing_to_warn_of() -> None:
    program = "from training import native_log; native_log.drop_notes()"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        cwd=processes.ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
