"""Loss scaling for float16, whose smallest gradients would vanish.

The loss is multiplied by a scale before the backward pass and the summed
gradients are divided by it. If one of them is not finite the step is skipped
and the scale halved; after many good steps it is doubled. The decision is made
on gradients that are already summed over replicas: an overflow anywhere makes
the sum infinite or NaN everywhere, so all replicas and workers decide alike.

Micikevicius et al. (2018), Mixed Precision Training,
https://arxiv.org/abs/1710.03740, section 3.2. Deviation: the scale has a cap,
since without one it grows to infinity in quiet times and then skips for ever.
"""

import dataclasses

import tensorflow as tf

from training.gradients import Gradients

_INITIAL = 2.0**15
_LEAST, _MOST = 1.0, 2.0**24
_GROWTH_STEPS = 2000
# So many skipped in a row are no accident.
STUCK_STEPS = 20


@dataclasses.dataclass(frozen=True)
class LossScale:
    """The scale, and what decides on its next value."""

    scale: tf.Variable
    """float32 `[]`, what the loss is multiplied by."""
    good_steps: tf.Variable
    """int64 `[]`, applied steps since the scale changed."""
    skipped: tf.Variable
    """int64 `[]`, steps skipped since the run began."""
    streak: tf.Variable
    """int64 `[]`, steps skipped in a row up to now; stays once stuck."""

    def variables(self) -> dict[str, tf.Variable]:
        """Returns all of it for a checkpoint."""
        return {
            f"loss_scale/{field.name}": getattr(self, field.name)
            for field in dataclasses.fields(self)
        }

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns what to differentiate instead of the loss."""
        return loss * tf.cast(self.scale, loss.dtype)

    def unscale(self, gradients: Gradients) -> Gradients:
        """Returns the gradients of the loss itself."""
        inverse = 1.0 / tf.convert_to_tensor(self.scale)
        return [None if g is None else g * inverse for g in gradients]

    def logs(self) -> dict[str, float]:
        """Returns what to report."""
        return {
            "loss_scale": float(self.scale.numpy()),
            "skipped_steps": int(self.skipped.numpy()),
        }

    def is_skipping(self, num_steps: int) -> bool:
        """Returns whether the last `num_steps` steps were all skipped."""
        return int(self.streak.numpy()) >= num_steps

    def is_stuck(self) -> bool:
        """Returns whether `STUCK_STEPS` steps in a row were skipped."""
        return int(self.streak.numpy()) >= STUCK_STEPS

    def update(self, finite: tf.Tensor) -> None:
        """Notes a step; call it in cross-replica context.

        Args:
            finite: Whether its gradients were finite, bool `[]`.
        """
        none = tf.zeros([], tf.int64)
        good = tf.where(finite, self.good_steps + 1, none)
        grows = good >= _GROWTH_STEPS
        factor = tf.where(finite, tf.where(grows, 2.0, 1.0), 0.5)
        scale = tf.clip_by_value(self.scale * factor, _LEAST, _MOST)
        streak = tf.where(finite, none, self.streak + 1)
        streak = tf.where(self.streak >= STUCK_STEPS, self.streak, streak)
        self.scale.assign(scale)
        self.good_steps.assign(tf.where(grows, none, good))
        self.skipped.assign_add(tf.cast(tf.logical_not(finite), tf.int64))
        self.streak.assign(streak)


def create() -> LossScale:
    """Returns a new loss scale; call it in the strategy's scope."""

    def variable(name: str, value: float, dtype: tf.DType) -> tf.Variable:
        return tf.Variable(
            tf.cast(value, dtype),
            trainable=False,
            name=name,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    return LossScale(
        variable("scale", _INITIAL, tf.float32),
        variable("good_steps", 0, tf.int64),
        variable("skipped", 0, tf.int64),
        variable("streak", 0, tf.int64),
    )
