"""Orbit's `StandardTrainer`, with a Keras 3 model, as a contestant.

Orbit comes with the TensorFlow Model Garden; `requirements-orbit.txt` says how
to install it beside the rest.
"""

from typing import Any

import keras
import tensorflow as tf

from benchmarks import _contest


def make(contest: _contest.Contest) -> _contest.Rate | None:
    """Returns Orbit on a model and data of its own; None if not installed."""
    try:
        import orbit
    except ImportError:
        return None

    # mypy sees no types in Orbit, which need not be installed.
    class Trainer(orbit.StandardTrainer):  # type: ignore[misc]
        """A step as Orbit's own examples write it."""

        def __init__(self) -> None:
            super().__init__(_contest.peer_batches())
            self.net = _contest.build(contest)
            self.optimizer = keras.optimizers.Adam()
            self.optimizer.build(self.net.trainable_variables)
            self.loss = keras.metrics.Mean(name="loss")
            self.accuracy = keras.metrics.SparseCategoricalAccuracy()

        def train_loop_begin(self) -> None:
            self.loss.reset_state()
            self.accuracy.reset_state()

        def train_step(self, iterator: Any) -> None:
            def step(features: tf.Tensor, labels: tf.Tensor) -> None:
                with tf.GradientTape() as tape:
                    logits = self.net(features, training=True)
                    loss = tf.reduce_mean(
                        tf.nn.sparse_softmax_cross_entropy_with_logits(
                            labels, logits
                        )
                    )
                weights = self.net.trainable_variables
                self.optimizer.apply(tape.gradient(loss, weights), weights)
                self.loss.update_state(loss)
                self.accuracy.update_state(labels, logits)

            tf.distribute.get_strategy().run(step, args=next(iterator))

        def train_loop_end(self) -> dict[str, tf.Tensor]:
            return {
                "loss": self.loss.result(),
                "accuracy": self.accuracy.result(),
            }

    trainer = Trainer()
    count = tf.constant(contest.steps)
    return _contest.repeated(
        lambda: float(trainer.train(count)["loss"]), contest.steps
    )
