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
# A tensor or shape, or a list of them: what a layer is called on.
Features = Any
Shapes = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One way to construct and call a layer; its test file lists several."""

    name: str
    kwargs: Callable[[], dict[str, Any]]
    """Makes new arguments at each call: an argument may be a layer."""
    input_shape: Shapes
    """With a batch size that four replicas divide. A list if the layer takes
    a list of tensors."""
    num_variables: int
    prepare: Callable[[Features], Features] = lambda features: features
    """Makes valid input of standard normal NumPy arrays of `input_shape`."""


def check_layer(
    cls: type[keras.layers.Layer],
    case: Case,
    strategy_of: StrategyOf,
    folder: Path,
) -> None:
    """Runs all checks of this module."""
    layer = cls(**case.kwargs())
    features = make_features(case)
    check_shapes_and_variables(layer, features, case.num_variables)
    check_config(layer)
    check_training_step(layer, features)
    check_modes(layer, features)
    check_saving(layer, features, folder)
    for num_replicas in (2, 4):
        check_replicas(layer, features, strategy_of(num_replicas))
    check_mixed_precision(cls, case, features)
    check_float64(cls, case, features)


def make_features(case: Case) -> Features:
    random = np.random.default_rng(0)
    if isinstance(case.input_shape, tuple):
        drawn = random.normal(size=case.input_shape)
    else:
        drawn = [random.normal(size=shape) for shape in case.input_shape]
    return tf.nest.map_structure(
        lambda array: tf.constant(array, "float32"), case.prepare(drawn)
    )


def each(function: Callable[..., Any], *features: Features) -> Any:
    return tf.nest.map_structure(function, *features)


def batch_free(features: Features) -> Shapes:
    """The shapes of `features` with an unknown batch size."""
    if isinstance(features, list):
        return [batch_free(one) for one in features]
    return (None, *features.shape[1:])


def check_shapes_and_variables(
    layer: keras.layers.Layer, features: Features, num_variables: int
) -> None:
    layer.build(batch_free(features))
    assert len(layer.variables) == num_variables
    outputs = layer(features)
    assert len(layer.variables) == num_variables
    spec = layer.compute_output_spec(
        each(
            lambda one: keras.KerasTensor(batch_free(one), "float32"), features
        )
    )
    assert spec.shape == (None, *outputs.shape[1:])
    assert spec.dtype == outputs.dtype.name
    assert layer.compute_output_shape(batch_free(features)) == spec.shape


def check_config(layer: keras.layers.Layer) -> None:
    # As text, which is how it is saved: tuples and lists are the same there.
    config = layer.get_config()
    copy = type(layer).from_config(config)
    assert json.dumps(copy.get_config()) == json.dumps(config)


def check_training_step(layer: keras.layers.Layer, features: Features) -> None:
    if not layer.trainable_variables:
        return
    before, _, gradients = outputs_and_gradients(layer, features)
    optimizer = keras.optimizers.SGD(1e-3)
    optimizer.apply(gradients, layer.trainable_variables)
    after, _, _ = outputs_and_gradients(layer, features)
    assert tf.nn.l2_loss(after) < tf.nn.l2_loss(before)


def check_modes(layer: keras.layers.Layer, features: Features) -> None:
    def run(features: Features) -> Any:
        return outputs_and_gradients(layer, features)

    eager = run(features)
    for jit_compile in (False, True):
        compiled = tf.function(run, autograph=False, jit_compile=jit_compile)
        assert_close(compiled(features), eager)


def check_saving(
    layer: keras.layers.Layer, features: Features, folder: Path
) -> None:
    """In a Functional model of unknown batch size, in both formats."""
    inputs = each(lambda one: keras.Input(one.shape[1:]), features)
    model = keras.Model(inputs, layer(inputs))
    model.save(folder / "layer.keras")
    loaded = keras.saving.load_model(folder / "layer.keras")
    assert_close(loaded(features), model(features))
    model.export(folder / "exported", format="tf_saved_model", verbose=False)
    exported = tf.saved_model.load(folder / "exported")
    assert_close(exported.serve(features), model(features))


def check_replicas(
    layer: keras.layers.Layer,
    features: Features,
    strategy: tf.distribute.Strategy,
) -> None:
    """The same outputs and sum of gradients as on one device."""
    outputs, _, gradients = outputs_and_gradients(layer, features)
    with strategy.scope():
        copy = type(layer).from_config(layer.get_config())
        copy.build(batch_free(features))
        copy.set_weights(layer.get_weights())

    def distribute(tensor: tf.Tensor) -> Any:
        shards = tf.split(tensor, strategy.num_replicas_in_sync)
        return strategy.experimental_distribute_values_from_function(
            lambda context: shards[context.replica_id_in_sync_group]
        )

    per_replica = each(distribute, features)

    @tf.function(autograph=False)
    def run(features: Features) -> Any:
        return strategy.run(
            lambda x: outputs_and_gradients(copy, x), args=(features,)
        )

    replica_outputs, _, replica_gradients = run(per_replica)
    rows = strategy.experimental_local_results(replica_outputs)
    assert_close(tf.concat(rows, 0), outputs)
    for sharded, whole in zip(replica_gradients, gradients, strict=True):
        assert_close(strategy.reduce("SUM", sharded, axis=None), whole)


def check_mixed_precision(
    cls: type[keras.layers.Layer], case: Case, features: Features
) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    layer = cls(**case.kwargs())
    outputs, _, gradients = outputs_and_gradients(layer, features)
    keras.config.set_dtype_policy("float32")
    exact = cls(**case.kwargs())
    exact.build(batch_free(features))
    exact.set_weights(layer.get_weights())
    assert outputs.dtype == tf.bfloat16
    assert {v.dtype for v in layer.variables} <= {"float32"}
    assert all(np.all(np.isfinite(g)) for g in gradients)
    assert_close(tf.cast(outputs, "float32"), exact(features), 5e-2)


def check_float64(
    cls: type[keras.layers.Layer], case: Case, features: Features
) -> None:
    keras.config.set_dtype_policy("float64")
    layer = cls(**case.kwargs())
    outputs, _, gradients = outputs_and_gradients(layer, features)
    keras.config.set_dtype_policy("float32")
    assert {outputs.dtype, *(g.dtype for g in gradients)} == {tf.float64}


def outputs_and_gradients(
    layer: keras.layers.Layer, features: Features
) -> tuple[tf.Tensor, Features, list[tf.Tensor]]:
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
