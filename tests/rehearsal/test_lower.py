import numpy as np
import pytest
import tensorflow as tf

from errors import RunError
from rehearsal import lower
from rehearsal import stablehlo

SPEC = (tf.TensorSpec([4, 3]), {"weights": tf.TensorSpec([4])})


def make_lowered() -> lower.Lowered:
    kernel = tf.Variable(tf.ones([3, 2]))
    step = tf.Variable(7, dtype=tf.int64)
    unused = tf.Variable(0.0)
    offset = tf.constant([1.0, 2.0])

    def train(batch: tuple) -> tf.Tensor:
        features, rest = batch
        loss = tf.reduce_sum(
            (features @ kernel + offset) * rest["weights"][:, tf.newaxis]
        )
        kernel.assign_sub(loss * kernel)
        step.assign_add(1)
        return loss

    named = {"model/kernel": kernel, "step": step, "unused": unused}
    return lower.lower(train, SPEC, named, ["dense"])


def test_names_what_goes_in() -> None:
    lowered = make_lowered()
    assert lowered.num_inputs == 2
    assert sorted(lowered.names) == ["constant_1", "model/kernel", "step"]
    values = dict(zip(lowered.names, lowered.values, strict=True))
    np.testing.assert_array_equal(values["model/kernel"], np.ones([3, 2]))
    np.testing.assert_array_equal(values["constant_1"], [1, 2])
    assert values["step"] == 7
    assert lowered.layers == ["dense"]


def test_changed_variables_come_out() -> None:
    lowered = make_lowered()
    changed = {
        lowered.names[argument - lowered.num_inputs]
        for argument in stablehlo.aliases(lowered.module).values()
    }
    assert changed == {"model/kernel", "step"}


def test_variables_and_results_are_whole_on_every_device() -> None:
    module = make_lowered().module
    signature = module.partition("func.func @main(")[2].partition(" {\n")[0]
    assert signature.count('{mhlo.sharding = "{replicated}"}') == 3 + 3
    for i in (0, 1):
        argument = signature.partition(f"%arg{i}: ")[2].partition(">")[2]
        assert not argument.startswith(" {mhlo")


def test_what_xla_does_not_take_is_one_line() -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda x: x, [x], tf.float32)

    with pytest.raises(
        RunError, match=r"XLA does not take the step \(.*PyFunc\)"
    ) as info:
        lower.lower(step, tf.TensorSpec([3]), {}, [])
    assert "\n" not in str(info.value)
