"""Messages of XLA's, shortened."""

import pytest

from rehearsal import refusal

BEFORE = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required "
    "for HLO temporaries (186.50G) exceeds available HBM (15.75G)."
)
AFTER = """RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of \
memory in memory space hbm. Used 30.25G of 15.50G hbm. Exceeded hbm capacity \
by 14.75G.

Total hbm usage >= 30.50G:
    reserved        256.00M

  Largest program allocations in hbm:

  1. Size: 1.50G
     Operator: op_name="net_1/embed_1/Gather" source_file="x.py" source_line=3
     Shape: bf16[256000,3072]{1,0:T(8,128)(2,1)}
     Unpadded size: 1.46G
     XLA label: convert.15982 = convert(param.72)
     Allocation type: HLO temp
     ==========================

  2. Size: 144.00M
     Shape: f32[3072,12288]{1,0:T(8,128)}
     Unpadded size: 144.00M
     XLA label: copy.3 = copy(param.7)
     Allocation type: HLO temp
     ==========================
"""


def test_memory_refused_before_the_layout() -> None:
    assert refusal.out_of_memory(BEFORE) == {
        "bytes_per_core": int(186.5 * 2**30),
        "bytes_available": int(15.75 * 2**30),
        "largest_buffers": [],
    }


def test_memory_refused_after_the_layout() -> None:
    found = refusal.out_of_memory(AFTER)
    assert found is not None
    assert found["bytes_per_core"] == int(30.25 * 2**30)
    assert found["bytes_available"] == int(15.5 * 2**30)
    assert found["largest_buffers"] == [
        {
            "bytes": int(1.5 * 2**30),
            "shape": "bf16[256000,3072]",
            "name": "net_1/embed_1/Gather",
            "kind": "temporary",
        },
        {
            "bytes": 144 * 2**20,
            "shape": "f32[3072,12288]",
            "name": "",
            "kind": "temporary",
        },
    ]


def test_another_refusal_is_not_of_memory() -> None:
    assert refusal.out_of_memory("INVALID_ARGUMENT: no") is None


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("INVALID_ARGUMENT: No emitter\n\t\nWhere:\n  ?", "No emitter"),
        (
            "INTERNAL: during context [pre-optimization]: Unexpected type",
            "Unexpected type",
        ),
        (
            "INVALID_ARGUMENT: CHLO => StableHLO failed;\n\n"
            "Detailed error from MLIR: -:2:7: error: failed to legalize "
            "operation 'mhlo.odd': %0 = \"mhlo.odd\"(%arg0)\n",
            "failed to legalize operation 'mhlo.odd'",
        ),
        ("", "it gave no reason"),
    ],
    ids=["status", "context", "mlir", "silent"],
)
def test_reason(words: str, line: str) -> None:
    assert refusal.reason(words) == line
