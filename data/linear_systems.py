"""Linear systems A x = b made from a seed: work for solvers.

`K` unknowns. A = D^(1/2) S D^(1/2), symmetric positive definite:
S = I + W Wᵀ / K with standard normal W `[K, K]` is well conditioned
(eigenvalues between 1 and about 5); the diagonal D grows over two orders of
magnitude from the first row to the last and varies a little from system to
system. A solver that does not scale rows therefore meets condition numbers of
some hundreds, one that has learned a diagonal preconditioner only those of S.

Features: `matrix` A `[K, K]` and `vector` b `[K]`. Labels: x `[K]`, standard
normal; b is computed from it in float32. The numbers never depend on
`--seed`; nothing is stored.

    python train.py --dataset=linear_systems:size=16,examples=100000
"""

import dataclasses

import tensorflow as tf

import options as options_lib
from data import DataConfig
from data import DatasetInfo

_SPLIT_SEEDS = {"train": 1, "eval": 2}
# Powers of ten: the diagonal's range over the rows, and its deviation.
_DECADES = (-1.0, 1.0)
_JITTER = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What follows `linear_systems:`."""

    size: int = 16
    """Unknowns K of each system."""
    examples: int = 100_000
    """Training systems; evaluation has a hundredth."""

    def __post_init__(self) -> None:
        for name in ("size", "examples"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)}: must be 1 or more."
                )


def info(config: DataConfig) -> DatasetInfo:
    """Describes the systems that `config.argument` asks for.

    Raises:
        RequestError: for an unknown or repeated key or a bad value.
    """
    chosen = _options(config)
    vector = tf.TensorSpec([chosen.size], tf.float32)
    return DatasetInfo(
        task="regression",
        num_examples={
            "train": chosen.examples,
            "eval": max(1, chosen.examples // 100),
        },
        features={
            "matrix": tf.TensorSpec([chosen.size, chosen.size], tf.float32),
            "vector": vector,
        },
        labels=vector,
    )


def example(
    config: DataConfig, split: str, index: tf.Tensor
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Computes system `index`: (`matrix`, `vector`) and its solution."""
    size = _options(config).size
    # The split is half of the seed, so no system is in both splits.
    seed = tf.stack([tf.constant(_SPLIT_SEEDS[split], tf.int64), index])
    # One draw for all three: the time goes to the number of operations.
    normal = tf.random.stateless_normal([size + 2, size], seed)
    factor, jitter, solution = normal[:size], normal[size], normal[size + 1]
    well_conditioned = tf.eye(size) + tf.matmul(
        factor, factor, transpose_b=True
    ) / float(size)
    exponents = tf.linspace(*_DECADES, size) + _JITTER * jitter
    scale = tf.pow(10.0, exponents / 2.0)
    matrix = well_conditioned * tf.tensordot(scale, scale, axes=0)
    vector = tf.linalg.matvec(matrix, solution)
    return {"matrix": matrix, "vector": vector}, solution


def _options(config: DataConfig) -> Options:
    return options_lib.parse(config.argument, Options, "dataset")
