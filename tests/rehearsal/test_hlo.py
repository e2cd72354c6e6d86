"""Instructions and shapes of programs that jaxlib and libtpu compiled."""

from pathlib import Path

import pytest

from rehearsal import hlo

TPU = (Path(__file__).parent / "tpu_program.txt").read_text()
CPU = (Path(__file__).parent / "cpu_program.txt").read_text()


def test_parse() -> None:
    instructions = hlo.parse(TPU)
    found = instructions["XlaAllReduce.0"]
    assert found.shape == "f32[3,3,4,8]{3,2,1,0:T(4,128)S(1)}"
    assert found.opcode == "all-reduce"
    assert found.operands == ["fusion.7"]
    assert found.op_name == "XlaAllReduce"
    assert found.computation == "ENTRY main.5_spmd"
    assert [i.name for i in instructions.values() if i.root] == ["tuple.18"]
    start = instructions["collective-permute-start"]
    assert start.operands == ["get-tuple-element.14"]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("f32[]", 4),
        ("f32[3,5]{1,0}", 60),
        ("pred[7]{0}", 7),
        ("s4[3]{0}", 2),
        ("c64[2]{0}", 16),
        ("token[]", 0),
        # Rows are padded to 128 lanes, and to 8 of them.
        ("f32[3,5]{1,0:T(8,128)}", 4 * 8 * 128),
        ("f32[256,10]{0,1:T(8,128)S(1)}", 4 * 16 * 256),
        ("bf16[8,1,16,4]{0,3,2,1:T(4,128)(2,1)S(1)}", 2 * 128 * 4 * 16),
        ("(f32[2]{0}, (s64[3]{0}, u8[1]{0}))", 8 + 24 + 1),
    ],
)
def test_shape_bytes(shape: str, expected: int) -> None:
    assert hlo.shape_bytes(shape) == expected


def test_causes_go_back_to_what_a_reduction_sums() -> None:
    instructions = hlo.parse(TPU)
    names = hlo.causes(
        instructions["XlaAllReduce.0"],
        instructions,
        hlo.callers(instructions),
        (),
    )
    assert names == [
        "gradient_tape/net_1/conv_1/convolution/Conv2DBackpropFilter"
    ]


def test_causes_tell_the_parts_of_one_reduction_apart() -> None:
    text = """HloModule m
ENTRY %main () -> f32[2] {
  %a = f32[2]{0} sine(), metadata={op_name="net_1/first_1/Sin"}
  %b = f32[2]{0} sine(), metadata={op_name="net_1/second_1/Sin"}
  %sum = (f32[2]{0}, f32[2]{0}) all-reduce(%a, %b), to_apply=%add
  ROOT %part = f32[2]{0} get-tuple-element(%sum), index=1
}
"""
    instructions = hlo.parse(text)
    names = hlo.causes(instructions["part"], instructions, {}, ())
    assert names == ["net_1/second_1/Sin"]


def test_in_loops() -> None:
    assert "region_1.3_spmd" in hlo.in_loops(hlo.parse(CPU))
