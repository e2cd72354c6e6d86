"""Largest buffers of programs that jaxlib and libtpu compiled."""

from pathlib import Path

from rehearsal import buffers

TPU = (Path(__file__).parent / "tpu_program.txt").read_text()
CPU = (Path(__file__).parent / "cpu_program.txt").read_text()


def test_arguments_are_named() -> None:
    first, second = buffers.largest(
        TPU, 2, ["conv"], ["features", "net/conv/kernel"]
    )
    assert first == {
        "bytes": 4 * 8 * 8 * 128 * 4,
        "shape": "f32[8,8,16,4]",
        "name": "features",
        "layer": "",
        "kind": "argument",
    }
    assert (second["name"], second["layer"]) == ("net/conv/kernel", "conv")


def test_what_lies_in_an_argument_or_beside_hbm_is_left_out() -> None:
    kinds = [each["kind"] for each in buffers.largest(TPU, 100)]
    # copy-done.1 is the new kernel, in the memory of the old one.
    assert kinds.count("argument") == 2
    large = [e for e in buffers.largest(TPU, 100) if e["bytes"] > 4]
    assert len(large) == 2


def test_temporaries_have_their_layer() -> None:
    found = buffers.largest(CPU, 3)
    assert found[0]["bytes"] == 4 * 8 * 8 * 16 * 8
    assert {each["layer"] for each in found} == {"conv"}
    assert {each["kind"] for each in found} == {"temporary"}
