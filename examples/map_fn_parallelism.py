"""`map_fn` is sequential in eager mode: how do I run it in parallel?

Eagerly it is a Python loop. `tf.function` makes it a loop of the graph, which
is faster as such; elements then overlap if `parallel_iterations`, the inter-op
threads and free cores allow. It is traced again for each new Python number,
unless an `input_signature` makes a tensor of it. `vectorized_map` has no loop
and is what to use where it can be. Python callbacks in a `map_fn` run one at a
time, since operations with state keep their order; not if a `numpy_function`
is declared stateless, nor in `Dataset.map`. Even then only what releases the
interpreter's lock gains, such as waiting or NumPy's work: not Python code.

    python -m examples.map_fn_parallelism

Threads are set before TensorFlow starts, so that each number of them has a
process of its own; `--inter_op` and `--intra_op` make this process one. The
profile that is captured at the end shows in TensorBoard which operations ran
at the same time. TensorBoard alone shows no profile: install
`tensorboard-plugin-profile` beside it, best in an environment of its own.
"""

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from examples import _callbacks
from examples import _timing

# What one process found. `ms`: way → ms; `active`: way → most callbacks at
# once; `traces`: what is new at each of three calls → traces.
Found = dict[str, dict[str, Any]]
Ways = dict[str, Callable[[], tf.Tensor]]

SIZES = {
    "numbers": 1000,
    "matrices": 64,
    "size": 128,
    "callbacks": 10,
    "rounds": 5,
}
SIGNATURE = [tf.TensorSpec([None]), tf.TensorSpec([])]


def scale(numbers: tf.Tensor, factor: Any) -> tf.Tensor:
    """Returns `factor * numbers + 1`, an element at a time."""
    return tf.map_fn(lambda number: factor * number + 1.0, numbers)


def trace(function: Callable, **kwargs: Any) -> Callable:
    """Returns `function` as a graph."""
    return tf.function(function, autograph=False, **kwargs)


def number_ways(count: int) -> Ways:
    """Returns ways to scale numbers by 2; two of them by 2, 3, 4, …."""
    numbers, two = tf.range(count, dtype="float32"), tf.constant(2.0)
    new, new_too = itertools.count(2), itertools.count(2)
    retraced, signed = trace(scale), trace(scale, input_signature=SIGNATURE)
    return {
        "numbers: map_fn, eager": lambda: scale(numbers, two),
        "numbers: map_fn, traced": trace(lambda: scale(numbers, two)),
        "numbers: new Python number": lambda: retraced(numbers, next(new)),
        "numbers: the same, signature": lambda: signed(numbers, next(new_too)),
        "numbers: vectorized_map": trace(
            lambda: tf.vectorized_map(lambda x: two * x + 1.0, numbers)
        ),
    }


def inverse_ways(matrices: tf.Tensor) -> Ways:
    """Returns ways to invert each of `matrices` `[N, K, K]`."""

    def invert(parallel: int) -> tf.Tensor:
        return tf.map_fn(tf.linalg.inv, matrices, parallel_iterations=parallel)

    return {
        "inverses: map_fn, eager": lambda: invert(10),
        "inverses: map_fn, traced, 1": trace(lambda: invert(1)),
        "inverses: map_fn, traced, 10": trace(lambda: invert(10)),
        "inverses: vectorized_map": trace(
            lambda: tf.vectorized_map(tf.linalg.inv, matrices)
        ),
    }


def make_matrices(count: int, size: int) -> tf.Tensor:
    """Returns matrices `[N, K, K]` that are far from singular."""
    shape = [count, size, size]
    noise = tf.random.stateless_normal(shape, [0, 0], stddev=size**-0.5)
    return noise + 3.0 * tf.eye(size)


def count_traces() -> dict[str, int]:
    """Returns how often three calls trace, by what is new at each."""
    traces: list[None] = []

    def scale_and_note(numbers: tf.Tensor, factor: Any) -> tf.Tensor:
        traces.append(None)  # what Python does besides: once a trace
        return scale(numbers, factor)

    def count(calls: list[tuple], **kwargs: Any) -> int:
        traces.clear()
        function = trace(scale_and_note, **kwargs)
        for arguments in calls:
            function(*arguments)
        return len(traces)

    numbers, two = tf.zeros([4]), tf.constant(2.0)
    python = [(numbers, factor) for factor in (2.0, 3.0, 4.0)]
    tensors = [(numbers, tf.constant(factor)) for _, factor in python]
    lengths = [(tf.zeros([length]), two) for length in (4, 5, 6)]
    return {
        "Python number": count(python),
        "Python number, signature": count(python, input_signature=SIGNATURE),
        "tensor": count(tensors),
        "length": count(lengths),
        "length, signature": count(lengths, input_signature=SIGNATURE),
    }


def capture_profile(matrices: tf.Tensor, folder: Path) -> list[Path]:
    """Profiles the traced inverses; returns the files written in `folder`."""
    ways = inverse_ways(matrices)
    traced = {name: run for name, run in ways.items() if "traced" in name}
    for run in traced.values():
        run()  # traces, which is not to be in the profile
    tf.profiler.experimental.start(str(folder))
    for step, (name, run) in enumerate(traced.items()):
        # A named event in the row of Python, and a step to TensorBoard.
        with tf.profiler.experimental.Trace(name, step_num=step, _r=1):
            run().numpy()
    tf.profiler.experimental.stop()
    return sorted(folder.rglob("*.xplane.pb"))


def measure(arguments: argparse.Namespace) -> Found:
    """Measures all ways with the threads of this process."""
    tf.config.threading.set_inter_op_parallelism_threads(arguments.inter_op)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.intra_op)
    matrices = make_matrices(arguments.matrices, arguments.size)
    times = _timing.compare(number_ways(arguments.numbers), arguments.rounds)
    times |= _timing.compare(inverse_ways(matrices), arguments.rounds)
    waiting, active = _callbacks.measure(
        arguments.callbacks, arguments.milliseconds, arguments.rounds
    )
    return {"ms": times | waiting, "active": active, "traces": count_traces()}


def measure_in_child(threads: str, words: Sequence[str]) -> Found:
    """Measures with threads such as `1x2`: inter-op × intra-op."""
    inter, intra = threads.split("x")
    command = [sys.executable, "-m", "examples.map_fn_parallelism", *words]
    child = subprocess.run(
        [*command, f"--inter_op={inter}", f"--intra_op={intra}"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(child.stdout)


def findings(found: dict[str, Found]) -> list[str]:
    """Returns what the table says, a finding each."""
    last = list(found)[-1]
    ms, traces = found[last]["ms"], found[last]["traces"]

    def times(way: str, other: str) -> str:
        return f"{ms[way] / ms[other]:.1f} times"

    def gains(way: str) -> str:
        columns = [one["ms"] for one in found.values()]
        ratios = [one[f"{way}, 1"] / one[f"{way}, 10"] for one in columns]
        return ", ".join(f"{ratio:.2f}" for ratio in ratios)

    traced = "numbers: map_fn, traced"
    return [
        f"Numbers, {last}: eager {times('numbers: map_fn, eager', traced)} as"
        " long as traced, which takes"
        f" {times(traced, 'numbers: vectorized_map')} as long as vectorized;"
        " a call that traces"
        f" {times('numbers: new Python number', traced)} as long as one that"
        " does not.",
        "Traces in three calls, by what is new at each: "
        + "; ".join(f"{what} {count}" for what, count in traces.items())
        + ".",
        "10 parallel iterations, with the threads of each column, are so many"
        " times as fast as 1:",
        f"  inverses {gains('inverses: map_fn, traced')};",
        f"  waiting in a py_function {gains('py_function, waits')}, in a"
        f" numpy_function {gains('numpy_function, waits')}, in a stateless one"
        f" {gains('stateless, waits')}, in Dataset.map"
        f" {gains('Dataset.map, waits')};",
        f"  computing in Python, stateless {gains('stateless, computes')}.",
    ]


def print_table(found: dict[str, Found]) -> None:
    """Prints a row for each way, a column for each number of threads."""
    heads = "".join(f"{threads:>9}    " for threads in found)
    print("ms, by inter-op × intra-op threads; [most callbacks at a time]")
    print(f"{'way, parallel iterations':<30}{heads}")
    for way in next(iter(found.values()))["ms"]:
        cells = ""
        for one in found.values():
            active = f"[{one['active'][way]}]" if way in one["active"] else ""
            cells += f"{one['ms'][way]:>9.2f} {active:<3}"
        print(f"{way:<30}{cells}")


def main(words: Sequence[str] | None = None) -> None:
    """Prints a table and what it says, and captures a profile."""
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1x1,1x2,2x1,2x2")
    parser.add_argument("--inter_op", type=int)
    parser.add_argument("--intra_op", type=int, default=0)
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--profile_dir", type=Path, default="runs/map_fn")
    arguments = parser.parse_args(words)
    if arguments.inter_op is not None:
        print(json.dumps(measure(arguments)))
        return
    found = {
        threads: measure_in_child(threads, words)
        for threads in arguments.threads.split(",")
    }
    print_table(found)
    print(*findings(found), sep="\n")
    matrices = make_matrices(arguments.matrices, arguments.size)
    capture_profile(matrices, arguments.profile_dir)
    print(
        f"Profile: tensorboard --logdir={arguments.profile_dir}, tab Profile,"
        " trace_viewer (tensorboard-plugin-profile must be installed). Look"
        " for MatrixInverse in the rows tf_Compute, the inter-op threads: are"
        " two at work at the same time?"
    )


if __name__ == "__main__":
    main()
