import dataclasses
import math

import tensorflow as tf

from rehearsal import plan
from rehearsal.plan import Plan

EXAMPLE = Plan(
    name="v5e:2x2",
    workers=1,
    replicas=2,
    devices_per_replica=2,
    global_batch=64,
    parameters=52_298,
    weight_bytes=209_192,
    optimizer_bytes=2 * 209_192,
    gradient_bytes=209_192,
    reduced_bytes=4,
    flops=2.5e9,
)


def test_says_what_a_run_holds_and_moves() -> None:
    assert EXAMPLE.batch == 32
    assert EXAMPLE.lines() == [
        "v5e:2x2: 1 worker, 2 replicas of 2 devices",
        "  batch: 64 = 2 x 32",
        "  parameters: 52,298; in each replica 209 kB of weights, 418 kB "
        "of optimizer, 209 kB of gradients",
        "  a step: 2.5 GFLOP in all, 4 B summed over the replicas",
    ]


def test_flops_need_not_be_known() -> None:
    lines = dataclasses.replace(EXAMPLE, flops=math.nan).lines()
    assert "a step: unknown FLOP in all" in lines[-1]


def test_counts_bytes_by_name() -> None:
    variables = {
        "model/a": tf.Variable(tf.zeros([3, 2])),
        "model/b": tf.Variable(tf.zeros([5], tf.float64)),
        "optimizer/c": tf.Variable(tf.zeros([7])),
    }
    assert plan.count_bytes(variables, ["model/"]) == 24 + 40
    assert plan.count_bytes(variables, ["optimizer/", "model/a"]) == 28 + 24


def test_counts_what_is_reduced() -> None:
    line = (
        '%1 = "stablehlo.all_reduce"(%0) <{groups}> ({\n  ^bb0(%a: x):\n'
        "    return %a : tensor<f32>\n}) : (tensor<SIZE>) -> tensor<SIZE> loc()"
    )
    module = "\n".join(line.replace("SIZE", s) for s in ("3x2xf32", "bf16"))
    assert plan.count_reduced_bytes(module, 2) == 24 + 2
    assert plan.count_reduced_bytes("", 2) == 0
    rows = line.replace("SIZE", "2x5x2xi32")
    assert plan.count_reduced_bytes(rows, 2) == 5 * 8


def test_sizes_have_three_digits() -> None:
    assert plan.in_words(16.9e9) == "16.9 GB"
    assert plan.in_words(1.5e6) == "1.5 MB"
    assert plan.in_words(147456) == "147 kB"
    assert plan.in_words(4) == "4 B"
