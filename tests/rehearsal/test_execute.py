import math

import numpy as np
import pytest
import tensorflow as tf

from rehearsal import child
from rehearsal import execute
from rehearsal.lower import Lowered


def test_rows_go_to_replicas_and_results_come_back(monkeypatch) -> None:
    asked = {}

    def run(request: dict, arrays: dict, timeout_secs: float) -> tuple:
        asked.update(request=request, arrays=arrays)
        results = {
            "output/0/0": np.array([0.5, 0.5]),
            "output/1/0": np.array([0.25, 0.25]),
            "state/0": np.array([3.0]),
            "state/1": np.array([4.0]),
        }
        return {"collectives": []}, results

    monkeypatch.setattr(child, "run", run)
    values = [np.array([1.0]), np.array([2.0])]
    lowered = Lowered("module", 1, ["model/a", "b"], values, ["a"])
    batches = [[np.arange(4) + 10 * k] for k in range(2)]
    received = execute.execute(lowered, batches, 2, 4)
    assert received.losses.tolist() == [0.5, 0.25]
    assert {k: v.tolist() for k, v in received.variables.items()} == {
        "model/a": [3.0],
        "b": [4.0],
    }
    request = asked["request"]
    assert request["num_replicas"] == 2
    assert request["num_partitions"] == 4
    assert request["steps"] == 2
    assert request["num_inputs"] == 1
    # Row i of a global batch is a row of replica i mod 2.
    assert asked["arrays"]["input/1/0"].tolist() == [[10, 12], [11, 13]]
    assert asked["arrays"]["state/1"] == pytest.approx([2.0])


def test_counts_flops_of_a_matrix_product() -> None:
    function = tf.function(lambda a, b: a @ b, jit_compile=True)
    make = function.experimental_get_compiler_ir(
        tf.TensorSpec([3, 5]), tf.TensorSpec([5, 7])
    )
    lowered = Lowered(make(stage="stablehlo"), 2, [], [], [])
    assert execute.count_flops(lowered) == 2 * 3 * 5 * 7


def test_without_jax_flops_are_not_known(monkeypatch) -> None:
    monkeypatch.setattr(child, "is_installed", lambda: False)
    assert math.isnan(execute.count_flops(Lowered("", 0, [], [], [])))
