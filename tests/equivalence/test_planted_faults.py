"""The suite itself is tested: with a fault put in, a test must fail.

Each fault is one that people make, planted by replacing one function. Beside
it stands the test that must notice.
"""

import functools
import types
from collections.abc import Callable

import keras
import pytest
import tensorflow as tf

from data.pipeline import order
from tests.data.pipeline import test_prepare
from tests.training import test_randomness
from tests.training import test_step
from training import forward
from training import gradients
from training import randomness
from training import statistics
from training import step

REPLICAS = 2
Plant = Callable[[pytest.MonkeyPatch], None]


def _clip_before_the_sum(patch: pytest.MonkeyPatch) -> None:
    total, clip = gradients.sum_over_replicas, gradients.clip
    patch.setattr(
        gradients, "sum_over_replicas", lambda own: total(clip(own, 0.5))
    )
    patch.setattr(gradients, "clip", lambda own, clipnorm: own)


def _divide_by(patch: pytest.MonkeyPatch, parts: int) -> None:
    make = forward.make_forward_backward

    def wrong(strategy, state, task, global_batch_size, config):
        size = global_batch_size // parts
        return make(strategy, state, task, size, config)

    patch.setattr(forward, "make_forward_backward", wrong)


def _count_penalties_on_every_replica(patch: pytest.MonkeyPatch) -> None:
    own = forward.own_losses
    patch.setattr(
        forward, "own_losses", lambda *args: own(*args) * float(REPLICAS)
    )


def _keep_each_replicas_statistics(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statistics, "statistics_of", lambda model: [])


def _look_for_overflow_on_the_first_replica(patch: pytest.MonkeyPatch) -> None:
    total, check = gradients.sum_over_replicas, gradients.are_finite
    local = []

    def remember(own):
        local.append([each for each in own if each is not None])
        return total(own)

    # The first to come here is the first replica.
    patch.setattr(gradients, "sum_over_replicas", remember)
    patch.setattr(gradients, "are_finite", lambda summed: check(local.pop(0)))


def _shuffle_without_a_common_seed(patch: pytest.MonkeyPatch) -> None:
    indices, calls = order.train_indices, []

    def wrong(num_examples, global_batch_size, seed, step):
        calls.append(seed)
        return indices(num_examples, global_batch_size, len(calls), step)

    patch.setattr(order, "train_indices", wrong)


class _MeanOfMeans(keras.metrics.Mean):
    def update_state(self, values, sample_weight=None):
        weights = (
            tf.ones_like(values) if sample_weight is None else (sample_weight)
        )
        mean = tf.math.divide_no_nan(
            tf.reduce_sum(values * weights), tf.reduce_sum(weights)
        )
        return super().update_state(mean)


def _average_batch_means(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step.keras.metrics, "Mean", _MeanOfMeans)


def _sum_a_second_time(patch: pytest.MonkeyPatch) -> None:
    total = gradients.sum_over_replicas
    patch.setattr(gradients, "sum_over_replicas", lambda own: total(total(own)))


def _draw_the_same_on_every_replica(patch: pytest.MonkeyPatch) -> None:
    reseed = randomness.reseed

    def wrong(seeds, seed, step):
        same = types.SimpleNamespace(replica_id_in_sync_group=0)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(tf.distribute, "get_replica_context", lambda: same)
            reseed(seeds, seed, step)

    patch.setattr(randomness, "reseed", wrong)


FAULTS: dict[str, tuple[Plant, Callable[..., None], dict[str, object]]] = {
    "clipping before the sum": (
        _clip_before_the_sum,
        test_step.test_clipping_sees_the_gradient_of_the_global_batch,
        {"replicas": REPLICAS},
    ),
    "loss divided by a replica's batch": (
        functools.partial(_divide_by, parts=REPLICAS),
        test_step.test_golden_losses,
        {"replicas": REPLICAS, "optimizer": "sgd", "jit_compile": False},
    ),
    "penalty on every replica": (
        _count_penalties_on_every_replica,
        test_step.test_penalties_count_once,
        {"replicas": REPLICAS},
    ),
    "accumulation that forgets to divide": (
        functools.partial(_divide_by, parts=2),
        test_step.test_micro_batches_are_one_step_on_the_joined_batch,
        {"replicas": 1, "jit_compile": False},
    ),
    "statistics of the first replica only": (
        _keep_each_replicas_statistics,
        test_step.test_statistics_are_the_mean_of_all_replicas,
        {"replicas": REPLICAS},
    ),
    "overflow looked for on one replica": (
        _look_for_overflow_on_the_first_replica,
        test_step.test_an_overflow_anywhere_skips_the_step_everywhere,
        {"replicas": REPLICAS, "synchronized": False},
    ),
    "evaluation as a mean of batch means": (
        _average_batch_means,
        test_step.test_evaluation_counts_each_example_once,
        {"replicas": REPLICAS, "batch": 4},
    ),
    "shuffle without a common seed": (
        _shuffle_without_a_common_seed,
        lambda strategy_of, **layout: (
            test_prepare.test_global_batches_do_not_depend_on_the_layout(
                **layout
            )
        ),
        {"kind": "arrays", "num_workers": 2, "num_replicas": 2},
    ),
    "the same random numbers on every replica": (
        _draw_the_same_on_every_replica,
        test_randomness.test_every_replica_and_layer_draws_its_own,
        {"replicas": REPLICAS},
    ),
    "gradients summed twice": (
        _sum_a_second_time,
        test_step.test_loss_is_averaged_over_the_global_batch,
        {"replicas": REPLICAS},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault, strategy_of, monkeypatch) -> None:
    plant, test, arguments = FAULTS[fault]
    test(strategy_of, **arguments)
    plant(monkeypatch)
    keras.utils.clear_session()
    with pytest.raises(AssertionError):
        test(strategy_of, **arguments)
