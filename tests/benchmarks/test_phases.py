import itertools
import json
import subprocess
import sys

from benchmarks import _phases
from tests import processes


def test_a_phase_inside_another_stops_that_one(monkeypatch) -> None:
    ticks = itertools.count(0.0)
    monkeypatch.setattr(_phases.time, "perf_counter", lambda: next(ticks))
    stopwatch = _phases.Stopwatch()
    inner = stopwatch.wrap("inner", lambda: "done")
    outer = stopwatch.wrap("outer", inner)
    assert outer() == "done"
    # One tick before, one before and one after `inner`, one in it, one after.
    assert stopwatch.stop() == {"other": 2.0, "outer": 2.0, "inner": 1.0}


def test_names_where_the_time_of_a_start_goes(tmp_path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks._phases"),
            *("--model=mlp", "--steps_per_loop=1", f"--model_dir={tmp_path}"),
        ],
        cwd=processes.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seconds = json.loads(done.stdout.splitlines()[-1])
    assert seconds.keys() == {
        "other",
        "imports",
        "strategy",
        "data",
        "model",
        "files",
        "first_step",
    }
    assert min(seconds.values()) > 0
