"""What every layer must do, whatever it computes."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

StrategyOf = Callable[[int], tf.distribute.Strategy]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One way to construct and call a layer; its test file lists several."""

    name: str
    kwargs: Callable[[], dict[str, Any]]
    """Makes new arguments at each call: an argument may be a layer."""
    input_shape: tuple[int, ...]
    """With a batch size that four replicas divide."""
    num_variables: int


def check_layer(
    cls: type[keras.layers.Layer],
    case: Case,
    strategy_of: StrategyOf,
    folder: Path,
) -> None:
    """Runs all checks of this module."""
    layer = cls(**case.kwargs())
    inputs = np.random.default_rng(0).normal(size=case.input_shape)
    features = tf.constant(inputs, "float32")
    check_shapes_and_variables(layer, features, case.num_variables)
    check_config(layer)
    check_training_step(layer, features)
    check_modes(layer, features)
    check_saving(layer, features, folder)
    for num_replicas in (2, 4):
        check_replicas(layer, features, strategy_of(num_replicas))
    check_mixed_precision(cls, case, features)
    check_float64(cls, case, features)


def check_shapes_and_variables(
    layer: keras.layers.Layer, features: tf.Tensor, num_variables: int
) -> None:
    batch_free = (None, *features.shape[1:])
    layer.build(batch_free)
    assert len(layer.variables) == num_variables
    outputs = layer(features)
    assert len(layer.variables) == num_variables
    spec = layer.compute_output_spec(keras.KerasTensor(batch_free, "float32"))
    assert spec.shape == (None, *outputs.shape[1:])
    assert spec.dtype == outputs.dtype.name
    assert layer.compute_output_shape(batch_free) == spec.shape


def check_config(layer: keras.layers.Layer) -> None:
    # As text, which is how it is saved: tuples and lists are the same there.
    config = layer.get_config()
    copy = type(layer).from_config(config)
    assert json.dumps(copy.get_config()) == json.dumps(config)


def check_training_step(layer: keras.layers.Layer, features: tf.Tensor) -> None:
    before, _, gradients = outputs_and_gradients(layer, features)
    optimizer = keras.optimizers.SGD(1e-3)
    optimizer.apply(gradients, layer.trainable_variables)
    after, _, _ = outputs_and_gradients(layer, features)
    assert tf.nn.l2_loss(after) < tf.nn.l2_loss(before)


def check_modes(layer: keras.layers.Layer, features: tf.Tensor) -> None:
    def run(features: tf.Tensor) -> Any:
        return outputs_and_gradients(layer, features)

    eager = run(features)
    for jit_compile in (False, True):
        compiled = tf.function(run, autograph=False, jit_compile=jit_compile)
        assert_close(compiled(features), eager)


def check_saving(
    layer: keras.layers.Layer, features: tf.Tensor, folder: Path
) -> None:
    inputs = keras.Input(features.shape[1:])
    model = keras.Model(inputs, layer(inputs))
    model.save(folder / "layer.keras")
    loaded = keras.saving.load_model(folder / "layer.keras")
    assert_close(loaded(features), model(features))


def check_replicas(
    layer: keras.layers.Layer,
    features: tf.Tensor,
    strategy: tf.distribute.Strategy,
) -> None:
    """The same outputs and sum of gradients as on one device."""
    outputs, _, gradients = outputs_and_gradients(layer, features)
    with strategy.scope():
        copy = type(layer).from_config(layer.get_config())
        copy.build((None, *features.shape[1:]))
        copy.set_weights(layer.get_weights())
    shards = tf.split(features, strategy.num_replicas_in_sync)
    per_replica = strategy.experimental_distribute_values_from_function(
        lambda context: shards[context.replica_id_in_sync_group]
    )

    @tf.function(autograph=False)
    def run(features: tf.Tensor) -> Any:
        return strategy.run(
            lambda x: outputs_and_gradients(copy, x), args=(features,)
        )

    replica_outputs, _, replica_gradients = run(per_replica)
    rows = strategy.experimental_local_results(replica_outputs)
    assert_close(tf.concat(rows, 0), outputs)
    for sharded, whole in zip(replica_gradients, gradients, strict=True):
        assert_close(strategy.reduce("SUM", sharded, axis=None), whole)


def check_mixed_precision(
    cls: type[keras.layers.Layer], case: Case, features: tf.Tensor
) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    layer = cls(**case.kwargs())
    outputs, _, gradients = outputs_and_gradients(layer, features)
    keras.config.set_dtype_policy("float32")
    exact = cls(**case.kwargs())
    exact.build(features.shape)
    exact.set_weights(layer.get_weights())
    assert outputs.dtype == tf.bfloat16
    assert {v.dtype for v in layer.variables} <= {"float32"}
    assert all(np.all(np.isfinite(g)) for g in gradients)
    assert_close(tf.cast(outputs, "float32"), exact(features), 5e-2)


def check_float64(
    cls: type[keras.layers.Layer], case: Case, features: tf.Tensor
) -> None:
    keras.config.set_dtype_policy("float64")
    layer = cls(**case.kwargs())
    outputs, _, gradients = outputs_and_gradients(layer, features)
    keras.config.set_dtype_policy("float32")
    assert {outputs.dtype, *(g.dtype for g in gradients)} == {tf.float64}


def outputs_and_gradients(
    layer: keras.layers.Layer, features: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    """Outputs, and gradients of half their sum of squares."""
    with tf.GradientTape() as tape:
        tape.watch(features)
        outputs = layer(features)
        loss = tf.nn.l2_loss(tf.cast(outputs, layer.variable_dtype))
    variables = [v.value for v in layer.trainable_variables]
    of_features, of_variables = tape.gradient(loss, [features, variables])
    return outputs, of_features, of_variables


def assert_close(got: Any, expected: Any, tolerance: float = 1e-5) -> None:
    for one, other in zip(
        tf.nest.flatten(got), tf.nest.flatten(expected), strict=True
    ):
        scale = max(1.0, np.max(np.abs(other)))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)
