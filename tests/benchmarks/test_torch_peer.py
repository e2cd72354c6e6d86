import re

import pytest

from benchmarks import _turns
from benchmarks import scaling

CNN = scaling.Contest("cnn", ("filters=2x3",), (2, 3), examples=128)
MLP = scaling.Contest("mlp", ("hidden=8",), (8,), examples=128)


@pytest.mark.skipif(not scaling.PEER.exists(), reason="no .venv-peers")
@pytest.mark.parametrize("compression", ["none", "bfloat16"])
@pytest.mark.parametrize("contest", [CNN, MLP], ids=["cnn", "mlp"])
def test_takes_turns(contest, compression) -> None:
    with scaling._torch(contest, compression) as contestant:
        for steps in (1, 3):
            assert _turns.take(contestant, steps) > 0


def test_knows_nothing_of_this_repository() -> None:
    """It runs in an environment that has PyTorch and no more."""
    text = (scaling.ROOT / "benchmarks" / "_torch_peer.py").read_text()
    imported = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
    assert {"torch", *imported} == {
        "torch",
        "json",
        "os",
        "sys",
        "time",
        "collections",
        "typing",
    }
