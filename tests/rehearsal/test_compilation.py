import pytest

from errors import RunError
from rehearsal import child
from rehearsal import compilation
from rehearsal.compilation import Compiled
from rehearsal.lower import Lowered
from tests.rehearsal.test_plan import EXAMPLE

REPLY = {
    "fits": True,
    "bytes_per_core": 4.0e9,
    "bytes_available": 16.9e9,
    "bytes_left": 12.9e9,
    "memory": {
        "arguments": 3e9,
        "outputs": 2e9,
        "aliased": 2e9,
        "temporary": 1e9,
        "generated_code": 0,
    },
    "flops": 197e9,
    "bytes_accessed": 819e6,
    "collectives": [
        {
            "kind": "all-reduce",
            "bytes": 1000,
            "group_size": 2,
            "layers": ["conv"],
            "direction": "backward",
        },
        {
            "kind": "all-reduce",
            "bytes": 500,
            "group_size": 2,
            "layers": ["dense"],
            "direction": "backward",
        },
    ],
    "largest_buffers": [
        {
            "bytes": 10**9 - i,
            "name": f"buffer {i}",
            "shape": "f32[2]",
            "layer": "conv" * (i > 0),
        }
        for i in range(9)
    ],
    "compile_secs": 1.6,
}
TOO_LARGE = {
    "fits": False,
    "bytes_per_core": 20e9,
    "bytes_available": 16.9e9,
    "bytes_left": -3.1e9,
    "largest_buffers": REPLY["largest_buffers"],
    "compile_secs": 9.0,
}


def test_says_whether_it_fits_and_what_is_largest() -> None:
    lines = Compiled(EXAMPLE, REPLY).lines()
    assert lines[:4] == [
        "Compiled for v5e:2x2 in 2 s: fits, 4 GB of 16.9 GB per core, 12.9 GB "
        "left",
        "  1 GB: buffer 0",
        "  1e+03 MB: buffer 1 (conv)",
        "  1e+03 MB: buffer 2 (conv)",
    ]
    assert lines[4] == "  2 all-reduce, 1.5 kB a core: conv, dense"
    assert lines[5].startswith("  a step, by the chip's peaks: 1 ms, 64,0")


def test_says_by_how_much_it_does_not_fit() -> None:
    lines = Compiled(EXAMPLE, TOO_LARGE).lines()
    assert (
        "does not fit, 20 GB of 16.9 GB per core, 3.1 GB too much" in lines[0]
    )
    assert len(lines) == 4
    assert Compiled(EXAMPLE, TOO_LARGE).estimate() == {}


def test_asks_for_the_layout_of_the_plan(monkeypatch) -> None:
    asked = {}

    def run(request: dict, arrays: dict, timeout_secs: float) -> tuple:
        asked.update(request)
        return REPLY, {}

    monkeypatch.setattr(child, "run", run)
    lowered = Lowered("module", 2, ["model/a"], [], ["a"])
    assert compilation.compile_step(EXAMPLE, lowered).reply is REPLY
    assert asked == {
        "kind": "compile",
        "module": "module",
        "topology": "v5e:2x2",
        "num_replicas": 2,
        "num_partitions": 2,
        "layers": ["a"],
        "argument_names": ["input 0", "input 1", "model/a"],
    }


def test_the_estimate_is_the_roofline() -> None:
    estimate = Compiled(EXAMPLE, REPLY).estimate()
    assert estimate["compute_secs"] == pytest.approx(1e-3)
    assert estimate["memory_secs"] == pytest.approx(1e-3)


def test_what_does_not_fit_is_refused_by_name() -> None:
    compilation.verify([Compiled(EXAMPLE, REPLY)])
    with pytest.raises(RunError, match=r"does not fit into a core of v5e:2x2;"):
        compilation.verify(
            [Compiled(EXAMPLE, REPLY), Compiled(EXAMPLE, TOO_LARGE)]
        )


def test_float64_is_not_compiled(monkeypatch, capsys) -> None:
    monkeypatch.setattr(child, "run", None)
    lowered = Lowered("module", 2, [], [], [])
    assert compilation.compile_all([(EXAMPLE, lowered)], "float64") == []
    assert "Not compiled" in capsys.readouterr().out
