import json
import re

import numpy as np
import pytest
import tensorflow as tf

from examples import map_fn_parallelism as example

SMALL = [
    "--numbers=4",
    "--matrices=4",
    "--size=4",
    "--callbacks=8",
    "--milliseconds=5",
    "--rounds=1",
]


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[str]:
    """What the example prints for two numbers of threads."""
    folder = tmp_path_factory.mktemp("profile")
    words = [*SMALL, "--threads=1x1,2x2", f"--profile_dir={folder}"]
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *text, **_: printed.extend(text))
        example.main(words)
    assert list(folder.rglob("*.xplane.pb"))
    return printed


def cells(lines: list[str], way: str) -> list[str]:
    (row,) = (line for line in lines if line.startswith(f"{way:<30}"))
    return row[30:].split()


def test_prints_a_figure_for_each_way_and_number_of_threads(lines) -> None:
    assert "threads" in lines[0]
    assert cells(lines, "way, parallel iterations") == ["1x1", "2x2"]
    matrices = example.make_matrices(2, 2)
    for way in (*example.number_ways(2), *example.inverse_ways(matrices)):
        times = [float(cell) for cell in cells(lines, way)]
        assert len(times) == 2
        assert min(times) > 0


@pytest.mark.parametrize(
    ("way", "most"),
    [
        ("py_function, waits, 1", ["[1]", "[1]"]),
        ("py_function, waits, 10", ["[1]", "[1]"]),
        ("numpy_function, waits, 1", ["[1]", "[1]"]),
        ("numpy_function, waits, 10", ["[1]", "[1]"]),
        ("stateless, waits, 1", ["[1]", "[1]"]),
        # One inter-op thread runs one operation at a time.
        ("stateless, waits, 10", ["[1]", "[2]"]),
        ("Dataset.map, waits, 1", ["[1]", "[1]"]),
    ],
    ids=str,
)
def test_prints_most_active_callbacks(lines, way, most) -> None:
    found = cells(lines, way)
    assert found[1::2] == most
    assert min(float(time) for time in found[::2]) > 0


def test_says_how_to_open_the_profile(lines) -> None:
    assert re.match(r"Profile: tensorboard --logdir=\S+", lines[-1])
    assert "tensorboard-plugin-profile must be installed" in lines[-1]


def test_ways_are_equal() -> None:
    for way, run in example.number_ways(5).items():
        np.testing.assert_allclose(
            run(), 2 * np.arange(5) + 1, rtol=1e-6, err_msg=way
        )
    matrices = example.make_matrices(3, 8)
    expected = np.linalg.inv(matrices.numpy().astype("float64"))
    for way, run in example.inverse_ways(matrices).items():
        np.testing.assert_allclose(run(), expected, atol=1e-5, err_msg=way)


def test_parallel_iterations_change_nothing() -> None:
    ways = example.inverse_ways(example.make_matrices(12, 8))
    np.testing.assert_array_equal(
        ways["inverses: map_fn, traced, 1"](),
        ways["inverses: map_fn, traced, 10"](),
    )


def test_traces_as_often_as_claimed() -> None:
    assert example.count_traces() == {
        "Python number": 3,
        "Python number, signature": 1,
        "tensor": 1,
        "length": 3,
        "length, signature": 1,
    }


def test_child_prints_json_only(lines, capsys, monkeypatch) -> None:
    """With `--inter_op` the process measures itself."""
    # These are set already, for this process.
    for name in ("inter", "intra"):
        monkeypatch.setattr(
            tf.config.threading,
            f"set_{name}_op_parallelism_threads",
            lambda threads: None,
        )
    example.main([*SMALL, "--inter_op=1", "--intra_op=1"])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"ms", "active", "traces"}


def test_profile_is_written(tmp_path) -> None:
    files = example.capture_profile(example.make_matrices(2, 4), tmp_path)
    assert len(files) == 1
    names = files[0].read_bytes()
    for parallel in (1, 10):
        assert f"inverses: map_fn, traced, {parallel}".encode() in names
