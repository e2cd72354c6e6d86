"""How close are the layers to what the machine can do?

    python -m benchmarks.layers --json=layers.json

3,000 products of a 100x100 matrix and a vector, by every way that people take;
the memory of one shared matrix and of a fixed point; and a recurrence step by
step against a scan.

What multiplies all at once is measured as training calls it, in a loop: ten
times, each product the vectors of the next, for TensorFlow's in one compiled
function. Times are those of one product.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import _command
from benchmarks import _pairs
from benchmarks import _peak
from benchmarks import _products
from model.layers.batched_mat_vec import BatchedMatVec
from model.layers.scan_recurrence import ScanRecurrence


def measure_products(num: int, size: int, rounds: int) -> dict[str, float]:
    """Multiplies `num` matrices `[size, size]` by a vector each."""
    # Made by TensorFlow and read by NumPy too: what NumPy allocates may lie in
    # larger pages, which are faster to read.
    matrices = tf.random.stateless_normal(
        [num, size, size], (1, 2), stddev=size**-0.5
    )
    vectors = tf.random.stateless_normal([num, size], (3, 4))
    chained, once = _products.ways(matrices, vectors)
    times = {
        name: seconds / _products.CHAIN
        for name, seconds in _pairs.rounds(chained, rounds).items()
    }
    ours = times["BatchedMatVec"]
    key = "BatchedMatVec"
    times_slow = _pairs.rounds(once | {key: chained[key]}, max(2, rounds // 8))
    times_slow[key] /= _products.CHAIN
    best = np.min(
        [times[name] for name in ("np.einsum", "np.matmul", "matvec, XLA")],
        axis=0,
    )
    python_loop = times_slow["eager loop"] / times_slow["BatchedMatVec"]
    ratios = {
        "vs_memory": times["memory"] / ours,
        "vs_best": best / ours,
        "vs_python_loop": python_loop,
    }
    print(f"\n{num:,} products of {size}x{size}{'ms':>16}{'GB/s':>9}")
    for name, values in (times_slow | times).items():
        median = np.median(values)
        rate = matrices.numpy().nbytes / median
        print(f"{name:<32}{1e3 * median:>9.2f}{rate / 1e9:>9.1f}")
    return _report("layers.batched_mat_vec", ratios)


def measure_shared(size: int, batch: int, rounds: int) -> dict[str, float]:
    """One shared matrix, forward and backward, against a plain product."""
    layer = BatchedMatVec(size, shared=True, use_bias=False)
    layer.build((None, 1, size))
    vectors = tf.random.stateless_normal([batch, size], (1, 2))
    kernel = layer.kernel.value

    def differentiate(product: Callable[[tf.Tensor], tf.Tensor]) -> Any:
        def run() -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(vectors)
                loss = tf.nn.l2_loss(product(vectors))
            return tape.gradient(loss, [vectors, kernel])

        return _products.graph(run)

    times = _pairs.rounds(
        {
            "ours": differentiate(lambda x: layer(x[:, tf.newaxis])),
            "matmul": differentiate(lambda x: tf.matmul(x, kernel)),
        },
        rounds,
    )
    megabytes = _peak.added(layer="shared", size=size, batch=batch)
    print(f"\nshared {size}x{size}, {batch} vectors, forward and backward")
    print(f"{'memory added, MB':<32}{megabytes:>9.1f}")
    ratios = {"times_matmul": times["ours"] / times["matmul"]}
    return {
        "layers.batched_mat_vec.shared.added_mb": megabytes,
        **_report("layers.batched_mat_vec.shared", ratios),
    }


def measure_fixed_point(counts: list[int], **size: int) -> dict[str, float]:
    """Memory at the larger number of iterations ÷ that at the smaller."""
    print(f"\nfixed point, memory added, MB{counts[0]:>8} {counts[1]:>8}")
    figures: dict[str, float] = {}
    for gradient in ("implicit", "unrolled"):
        few, many = (
            _peak.added(
                layer="fixed_point", iterations=n, gradient=gradient, **size
            )
            for n in counts
        )
        print(f"{gradient:<28}{few:>9.0f}{many:>9.0f}")
        name = f"layers.fixed_point.{gradient}"
        figures |= {
            f"{name}.few_mb": few,
            f"{name}.many_mb": many,
            f"{name}.memory_ratio": many / few,
        }
    return figures


def measure_recurrence(lengths: list[int], rounds: int) -> dict[str, float]:
    """Forward and backward by both methods, `B = 8`, diagonal, `K = 64`."""
    print(f"\nrecurrence, ms{'loop':>23}{'scan':>9}{'loop / scan':>13}")
    figures = {}
    for length in lengths:
        a = tf.random.stateless_uniform([8, length, 64], (1, 2))
        b = tf.random.stateless_normal([8, length, 64], (3, 4))
        times = _pairs.rounds(
            {
                method: _recurrence_step(method, a, b)
                for method in ("loop", "scan")
            },
            rounds,
        )
        loop, scan = (1e3 * float(np.median(t)) for t in times.values())
        ratio = _pairs.ratio(times["loop"] / times["scan"]).median
        print(f"T = {length:<24}{loop:>9.2f}{scan:>9.2f}{ratio:>13.2f}")
        figures[f"layers.scan_recurrence.{length}.loop_ms"] = loop
        figures[f"layers.scan_recurrence.{length}.scan_ms"] = scan
        figures[f"layers.scan_recurrence.{length}.loop_vs_scan"] = ratio
    return figures


def _recurrence_step(
    method: str, a: tf.Tensor, b: tf.Tensor
) -> Callable[[], Any]:
    layer = ScanRecurrence(method=method)

    def run() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            loss = tf.nn.l2_loss(layer([a, b]))
        return tape.gradient(loss, [a, b])

    return _products.graph(run)


def _report(name: str, ratios: dict[str, np.ndarray]) -> dict[str, float]:
    figures = {}
    for key, values in ratios.items():
        ratio = _pairs.ratio(values)
        print(
            f"{key:<32}{ratio.median:>9.2f}  {ratio.low:.2f}-{ratio.high:.2f}"
        )
        figures[f"{name}.{key}"] = ratio.median
        figures[f"{name}.{key}_low"] = ratio.low
        figures[f"{name}.{key}_high"] = ratio.high
    return figures


def main() -> None:
    """Measures everything, prints tables, writes JSON if asked to."""
    parser = _command.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--num", type=int, default=3000, help="of products")
    parser.add_argument("--size", type=int, default=100, help="of a matrix")
    parser.add_argument("--batch", type=int, default=256, help="of the states")
    parser.add_argument("--iterations", type=int, nargs=2, default=[10, 100])
    parser.add_argument("--longest", type=int, default=4096, help="recurrence")
    arguments = parser.parse_args()
    # Takes functions of one source for one function, traced again and again.
    tf.get_logger().setLevel("ERROR")
    rounds = arguments.rounds
    lengths = [n for n in (64, 256, 1024, 4096) if n <= arguments.longest]
    figures = {
        **measure_products(arguments.num, arguments.size, rounds),
        **measure_shared(512, 512, rounds),
        **measure_fixed_point(arguments.iterations, batch=arguments.batch),
        **measure_recurrence(lengths, max(1, rounds // 2)),
    }
    _command.write(arguments.json, figures)


if __name__ == "__main__":
    main()
