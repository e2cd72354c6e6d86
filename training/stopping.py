"""Which evaluation is the best so far, and when to give up waiting.

`--early_stopping=accuracy:patience=5` ends the run after five evaluations in a
row without a better accuracy. The evaluation's numbers are those of the whole
cluster, the same on every worker, so all decide alike.
"""

import dataclasses
from collections.abc import Iterable
from collections.abc import Mapping

import tensorflow as tf

import options as options_lib
from errors import RequestError

_FLAG = "early_stopping"
# Words in the names of metrics of which less is better.
_LESS_IS_BETTER = ("loss", "error", "residual", "bits_per", "perplexity")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoppingOptions:
    """What may follow the colon of `--early_stopping`."""

    patience: int = 5
    """Evaluations without a better value before the run ends. Positive."""
    mode: str = "auto"
    """`min` or `max` of the metric is better; `auto`: min for names with
    `loss`, `error`, `residual`, `bits_per` or `perplexity` in them."""

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "min", "max"):
            raise ValueError(f"mode={self.mode}: must be auto, min or max.")
        if self.patience < 1:
            raise ValueError(f"patience={self.patience}: must be 1 or more.")


@dataclasses.dataclass(frozen=True)
class Stopping:
    """What is watched, and what was seen."""

    metric: str
    """Name of an evaluation metric; empty: `accuracy`, or else `loss`."""
    patience: int
    """Evaluations to wait; 0: for ever."""
    mode: str
    """As in `StoppingOptions`."""
    best: tf.Variable
    """float64 `[]`, the best value."""
    stale: tf.Variable
    """int64 `[]`, evaluations since the best; -1 before the first."""

    def variables(self) -> dict[str, tf.Variable]:
        """Returns all that a checkpoint needs."""
        return {"stopping/best": self.best, "stopping/stale": self.stale}

    def is_over(self) -> bool:
        """Returns whether the patience is used up."""
        return 0 < self.patience <= int(self.stale.numpy())

    def check(self, names: Iterable[str]) -> None:
        """Refuses a metric that an evaluation will not have.

        Args:
            names: Of the metrics; not of what a worker's own clock measures,
                by which the workers would decide differently.

        Raises:
            RequestError: naming those there are.
        """
        names = sorted(names)
        if self.metric and self.metric not in names:
            raise RequestError(
                f"--{_FLAG}={self.metric}: must be one of {', '.join(names)}."
            )

    def name(self, evaluation: Mapping[str, float]) -> str:
        """Returns the name of the metric that is watched."""
        default = "accuracy" if "accuracy" in evaluation else "loss"
        return self.metric or default

    def update(self, evaluation: Mapping[str, float]) -> bool:
        """Notes an evaluation; returns whether it is the best so far."""
        name = self.name(evaluation)
        value, best = evaluation[name], float(self.best.numpy())
        less = less_is_better(name)
        if self.mode != "auto":
            less = self.mode == "min"
        better = value < best if less else value > best
        if better or int(self.stale.numpy()) < 0:
            self.best.assign(value)
            self.stale.assign(0)
            return True
        self.stale.assign_add(1)
        return False


def less_is_better(name: str) -> bool:
    """Returns whether a metric of this name is the better the lower it is."""
    return any(word in name for word in _LESS_IS_BETTER)


def create(early_stopping: str) -> Stopping:
    """Returns a fresh one; call it in the strategy's scope.

    Args:
        early_stopping: The flag: empty, or `metric:patience=5`.

    Raises:
        RequestError: for an unknown option or a patience below 1.
    """
    metric, _, words = early_stopping.partition(":")
    options = options_lib.parse(words, StoppingOptions, _FLAG)
    best = tf.Variable(0.0, dtype=tf.float64, trainable=False)
    stale = tf.Variable(-1, dtype=tf.int64, trainable=False)
    patience = options.patience if metric else 0
    return Stopping(metric, patience, options.mode, best, stale)
