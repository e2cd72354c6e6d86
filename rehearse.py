"""`--mode=rehearse`: builds all that a run would, and trains nothing.

It prints the plan of the run. For `--strategy=tpu` it goes on: the real step is
lowered, run partitioned on this machine and compared with the ordinary step,
and compiled for the real chip. `train.py` comes here; `rehearsal/` does the
work.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import placement
from data.pipeline import distribute
from data.pipeline import prepare
from flags import registry
from flags.command_line import Configs
from rehearsal import child
from rehearsal import compare
from rehearsal import compilation
from rehearsal import execute
from rehearsal import lower
from rehearsal import plan as plan_lib
from rehearsal import report
from rehearsal.replicas import StandInStrategy
from strategies.placement import logical_devices
from strategies.placement.layout import Layout
from strategies.placement.layout import layouts
from training import randomness
from training import runtime
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib

# (strategy, examples in a global batch) → the state, and a step that returns
# the loss of its batch
MakeStep = Callable[
    [tf.distribute.Strategy, int],
    tuple[state_lib.TrainState, Callable[[Any], tf.Tensor]],
]


def run(configs: Configs) -> dict[str, float]:
    """Rehearses; returns the largest differences, or nothing without a TPU.

    Raises:
        RequestError: as `train.run`, or if jax is needed and not installed.
        RunError: if the partitioned step differs from the ordinary one, if
            XLA cannot compile it, or if it does not fit.
    """
    strategy_config = configs.strategy
    is_tpu = strategy_config.strategy == "tpu"
    if is_tpu:
        child.check_installed()
    load = registry.load
    create = load("strategies", strategy_config.strategy, "strategy").create
    ways = layouts(strategy_config, create, os.environ)
    dataset = load("data", configs.data.dataset, "dataset")
    spec = prepare.element_spec(dataset, configs.data)
    logical_devices.check_features(strategy_config, spec[0])
    make_step = _make_make_step(configs, spec, dataset.info(configs.data))
    parts = []
    for way in ways:
        batch = configs.data.global_batch_size
        state, lowered = _lower(make_step, spec, configs, way, batch)
        plan = _plan(state, lowered, way, batch)
        print("\n".join(plan.lines()), flush=True)
        parts.append((plan, lowered))
    if not is_tpu:
        return {}
    checked = None
    if configs.run.rehearse_steps:
        checked = _compare(make_step, dataset, spec, configs, ways[0])
        print("\n".join(checked.lines()), flush=True)
    compiled = []
    if keras.config.dtype_policy().compute_dtype == "float64":
        print("Not compiled for a TPU, which has no float64", flush=True)
        parts = []
    for plan, lowered in parts:
        compiled.append(compilation.compile_step(plan, lowered))
        print("\n".join(compiled[-1].lines()), flush=True)
    rows = configs.data.global_batch_size // ways[0].replicas
    inputs = report.Inputs(
        [list(each.shape) for each in tf.nest.flatten(_sized(spec[0], rows))],
        list(strategy_config.partition_dimensions),
        ways[0].devices,
    )
    report.write(configs.run.model_dir or "runs", checked, compiled, inputs)
    if checked:
        checked.verify()
    return checked.figures() if checked else {}


def _make_make_step(configs: Configs, spec: Any, info: Any) -> MakeStep:
    run_config, _, _, model_config, config = configs
    module = registry.load("model", model_config.model, "model")
    # XLA compiles the whole step, not a part of it.
    config = dataclasses.replace(config, jit_compile=False)

    def make_step(
        strategy: tf.distribute.Strategy, batch: int
    ) -> tuple[state_lib.TrainState, Callable[[Any], tf.Tensor]]:
        # Each time the same names, and the same values.
        runtime.configure(run_config, model_config.dtype_policy, False)
        task = task_lib.resolve(module, info.task)
        with strategy.scope():
            model = module.build(model_config, spec, info.num_outputs)
            state = state_lib.create(model, config)
        step, metrics = step_lib.make_train_step(
            strategy, state, task, batch, config, run_config.seed
        )

        def step_and_loss(elements: Any) -> tf.Tensor:
            metrics[0].reset_state()
            step(elements)
            return metrics[0].result()

        return state, step_and_loss

    return make_step


def _lower(
    make_step: MakeStep, spec: Any, configs: Configs, way: Layout, batch: int
) -> tuple[state_lib.TrainState, lower.Lowered]:
    """Lowers the step of one of the replicas of a layout."""
    strategy = StandInStrategy(way.replicas, way.devices)
    distribute.check(strategy, configs.data)
    placer = logical_devices.create(strategy, configs.strategy)
    state, step = make_step(strategy, batch)
    rows = batch // way.replicas
    with placement.using(placer):
        layers = [
            layer.name
            for layer in state.model._flatten_layers()
            if not isinstance(layer, keras.Model)
        ]
        lowered = lower.lower(
            step, _sized(spec, rows), state.variables(), layers
        )
    return state, lowered


def _sized(spec: Any, rows: int) -> Any:
    return tf.nest.map_structure(
        lambda each: tf.TensorSpec([rows, *each.shape[1:]], each.dtype), spec
    )


def _plan(
    state: state_lib.TrainState, lowered: lower.Lowered, way: Layout, batch: int
) -> plan_lib.Plan:
    variables = state.variables()
    weights = state.model.trainable_variables
    return plan_lib.Plan(
        name=way.name,
        workers=way.workers,
        replicas=way.replicas,
        devices_per_replica=way.devices,
        global_batch=batch,
        parameters=state.model.count_params(),
        weight_bytes=plan_lib.count_bytes(variables, ["model/"]),
        optimizer_bytes=plan_lib.count_bytes(
            variables, ["optimizer/", "average/"]
        ),
        gradient_bytes=plan_lib.count_bytes(
            {each.path: each.value for each in weights}, [""]
        ),
        reduced_bytes=plan_lib.count_reduced_bytes(lowered.module),
        flops=way.replicas * execute.count_flops(lowered),
    )


def _compare(
    make_step: MakeStep, dataset: Any, spec: Any, configs: Configs, way: Layout
) -> compare.Checked:
    """Runs some steps partitioned, and the same ones as one device does."""
    data = configs.data
    rows = data.global_batch_size // way.replicas
    one = tf.distribute.OneDeviceStrategy("/cpu:0")
    state, _ = make_step(one, rows)
    # Each replica draws numbers of its own, which one device cannot.
    draws = bool(randomness.seeds_of(state.model))
    replicas = 1 if draws else min(2, way.replicas)
    data = dataclasses.replace(data, global_batch_size=rows * replicas)
    batches = list(
        prepare.train_dataset(
            dataset,
            data,
            tf.distribute.InputContext(),
            seed=configs.run.seed,
            step=0,
        ).take(configs.run.rehearse_steps)
    )
    state, step = make_step(one, data.global_batch_size)
    # Compiled, random layers draw other numbers than not compiled.
    ordinary = tf.function(step, jit_compile=draws, autograph=False)
    way = way._replace(replicas=replicas)
    configs = configs._replace(data=data)
    _, lowered = _lower(make_step, spec, configs, way, data.global_batch_size)
    losses = [ordinary(batch).numpy() for batch in batches]
    variables = {name: each.numpy() for name, each in state.variables().items()}
    return compare.check(
        lowered,
        [[t.numpy() for t in tf.nest.flatten(batch)] for batch in batches],
        compare.Expected(np.array(losses), variables),
        num_features=len(tf.nest.flatten(spec[0])),
        shape=(replicas, way.devices),
        dtype=keras.config.dtype_policy().compute_dtype,
    )
