"""Collectives of programs that jaxlib and libtpu compiled."""

from pathlib import Path

from rehearsal import collectives

TPU = (Path(__file__).parent / "tpu_program.txt").read_text()
CPU = (Path(__file__).parent / "cpu_program.txt").read_text()


def test_of_a_tpu_program() -> None:
    found = collectives.find(TPU)
    kinds = [each["kind"] for each in found]
    assert kinds == ["collective-permute", "collective-permute", "all-reduce"]
    assert {each["direction"] for each in found} == {"backward"}
    assert [each["layers"] for each in found] == [["conv"]] * 3
    # f32[3,3,4,8], 8 padded to 128.
    assert found[2]["bytes"] == 4 * 3 * 3 * 4 * 128
    assert found[2]["group_size"] == 2


def test_of_a_cpu_program_with_a_loop() -> None:
    found = collectives.find(CPU)
    loop = [each for each in found if each["in_loop"]]
    assert [(each["kind"], each["bytes"]) for each in loop] == [
        ("all-reduce", 4)
    ]
    assert loop[0]["layers"] == ["solve"]
    permutes = [e for e in found if e["kind"] == "collective-permute"]
    # One row of f32[8,1,16,4] to each side, forward and backward.
    assert [each["bytes"] for each in permutes] == [4 * 8 * 16 * 4] * 4
    directions = sorted(each["direction"] for each in permutes)
    assert directions == ["backward"] * 2 + ["forward"] * 2


def test_known_layers_only() -> None:
    assert all(not e["layers"] for e in collectives.find(CPU, ["other"]))


# A TPU's compiler writes an asynchronous gather out in every fusion that runs
# beside it.
REPEATED = """HloModule m
%first (p: f32[128,10]) -> f32[256,10] {
  %p = f32[128,10]{1,0} parameter(0)
  ROOT %g1 = f32[256,10]{1,0} all-gather(%p), channel_id=17, \
replica_groups=[2,2]<=[4], dimensions={0}
}
ENTRY %main (x: f32[128,10]) -> f32[256,10] {
  %x = f32[128,10]{1,0} parameter(0)
  %f = f32[256,10]{1,0} fusion(%x), kind=kLoop, calls=%first
  ROOT %g2 = f32[256,10]{1,0} all-gather(%x), channel_id=17, \
replica_groups=[2,2]<=[4], dimensions={0}
}
"""


def test_a_repeated_channel_counts_once() -> None:
    (found,) = collectives.find(REPEATED)
    assert found["bytes"] == 4 * 256 * 10
    assert found["group_size"] == 2
