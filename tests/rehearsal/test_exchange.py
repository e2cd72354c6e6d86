"""What one process writes the other reads."""

from pathlib import Path

import ml_dtypes
import numpy as np

from rehearsal import exchange


def test_round_trip(tmp_path: Path) -> None:
    arrays = {
        "input/0/0": np.arange(6, dtype=np.int64).reshape(2, 3),
        "state/0": np.array([1.5, -2.0], ml_dtypes.bfloat16),
        "state/1": np.float64(0.1) * np.ones([]),
    }
    exchange.write(tmp_path, "request", {"kind": "execute"}, arrays)
    message, found = exchange.read(tmp_path, "request")
    assert message == {"kind": "execute"}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
