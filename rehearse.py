"""`--mode=rehearse`: builds all that a run would, and trains nothing.

It prints the plan of the run. For `--strategy=tpu` it goes on: the real step is
lowered, run partitioned on this machine and compared with the ordinary step,
and compiled for the real chip. `train.py` comes here; `rehearsal/` does the
work.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import assemble
import placement
from data.pipeline import distribute
from data.pipeline import prepare
from errors import say
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
from strategies import StrategyConfig
from strategies import mirrored
from strategies.placement import logical_devices
from strategies.placement.layout import Layout
from strategies.placement.layout import layouts
from training import job as job_lib
from training import preemption
from training import randomness
from training import state as state_lib
from training import statistics
from training import step as step_lib
from training import task as task_lib

_TWO = StrategyConfig(strategy="mirrored", devices=("cpu:0", "cpu:1"))
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
            XLA cannot compile it, or if it does not fit into one of the TPUs.
    """
    with preemption.calling(_end, 0, "the rehearsal ends"):
        return _run(configs)


def _end() -> None:
    say("train.py: a rehearsal leaves nothing to go on from")
    # The child ends with this process.
    os._exit(1)


def _run(configs: Configs) -> dict[str, float]:
    name, is_tpu = configs.strategy.strategy, configs.strategy.strategy == "tpu"
    folder = ""
    if is_tpu:
        child.check_installed()
        # For the ordinary step of two replicas; before any use of TensorFlow.
        mirrored.create(_TWO)
        assemble.check_input(configs)
        folder = report.make_folder(configs.run.model_dir)
    module = registry.load("strategies", name, "strategy", "create")
    ways = layouts(configs.strategy, module.create, os.environ)
    dataset = registry.load("data", configs.data.dataset, "dataset", "info")
    spec = prepare.element_spec(dataset, configs.data)
    info = dataset.info(configs.data)
    make_step = functools.partial(_make_step, configs, spec, info)
    parts = []
    for way in ways:
        state, lowered = _lower(make_step, spec, configs, way)
        size = configs.data.global_batch_size
        plan = plan_lib.make(
            *way, size, state.variables(), state.model, lowered
        )
        print("\n".join(plan.lines()), flush=True)
        parts.append((plan, lowered))
    if not is_tpu:
        return {}
    checked = None
    if configs.run.rehearse_steps:
        checked = _compare(make_step, dataset, spec, configs, ways[0])
        print("\n".join(checked.lines()), flush=True)
    compiled = compilation.compile_all(
        parts, keras.config.dtype_policy().compute_dtype
    )
    rows = configs.data.global_batch_size // ways[0].replicas
    inputs = report.Inputs(
        [list(each.shape) for each in tf.nest.flatten(_sized(spec[0], rows))],
        list(configs.strategy.partition_dimensions),
        ways[0].devices,
    )
    report.write(folder, checked, compiled, inputs)
    compilation.verify(compiled)
    return checked.verify() if checked else {}


def _make_step(
    configs: Configs,
    spec: Any,
    info: Any,
    strategy: tf.distribute.Strategy,
    batch: int,
) -> tuple[state_lib.TrainState, Callable[[Any], tf.Tensor]]:
    _, _, data_config, model_config, config = configs
    # XLA compiles the whole step, not a part of it.
    config = dataclasses.replace(config, jit_compile=False, run_eagerly=False)
    configs = configs._replace(train=config)
    module = registry.load("model", model_config.model, "model", "build")
    task = task_lib.resolve(module, info.task)
    build = functools.partial(
        module.build, model_config, spec, info.num_outputs
    )
    state = assemble.make_state(configs, strategy, task, build)
    step, metrics = step_lib.make_train_step(
        strategy,
        state,
        task,
        batch,
        config,
        configs.run.seed,
        job_lib.make_stop(),
        data_config.skip_bad_examples > 0,
    )

    def step_and_loss(elements: Any) -> tf.Tensor:
        metrics[0].reset_state()
        step(elements)
        return metrics[0].result()

    return state, step_and_loss


def _lower(
    make_step: MakeStep, spec: Any, configs: Configs, way: Layout
) -> tuple[state_lib.TrainState, lower.Lowered]:
    """Lowers the step of one of the replicas of a layout."""
    strategy = StandInStrategy(way.replicas, way.devices)
    distribute.check(strategy, configs.data)
    placer = logical_devices.create(strategy, configs.strategy)
    size = configs.data.global_batch_size
    state, step = make_step(strategy, size)
    rows = size // way.replicas
    with placement.using(placer):
        layers = [
            layer.name
            for layer in statistics.layers(state.model)
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


def _compare(
    make_step: MakeStep, dataset: Any, spec: Any, configs: Configs, way: Layout
) -> compare.Checked:
    """Runs some steps partitioned, and the same ones as they always run."""
    one = tf.distribute.OneDeviceStrategy("/cpu:0")
    rows = configs.data.global_batch_size // way.replicas
    model = make_step(one, rows)[0].model
    # Each replica draws numbers of its own, which no other run can repeat: two
    # are only asked whether they agree.
    draws = bool(randomness.seeds_of(model))
    apart = ""
    if draws and way.replicas > 1:
        batches, lowered = _prepare(make_step, dataset, spec, configs, way, 2)
        ran = execute.execute(lowered, _flat(batches), 2, way.devices)
        apart = compare.find_apart(lowered, ran.reply)
    replicas = 1 if draws else min(2, way.replicas)
    # Statistics of a batch are those of a replica's, which one device has not.
    keeps = statistics.statistics_of(model)
    alone = replicas == 1 or not keeps or statistics.communicates(model)
    strategy = one if alone else mirrored.create(_TWO)
    batches, lowered = _prepare(
        make_step, dataset, spec, configs, way, replicas
    )
    state, step = make_step(strategy, rows * replicas)
    # Compiled, random layers draw other numbers than not compiled.
    ordinary = tf.function(step, jit_compile=draws, autograph=False)
    losses = [
        ordinary(distribute.rows(strategy, batch)).numpy() for batch in batches
    ]
    variables = {name: each.numpy() for name, each in state.variables().items()}
    rounded = configs.train.gradient_compression
    if rounded == "none":
        rounded = keras.config.dtype_policy().compute_dtype
    checked = compare.check(
        lowered,
        _flat(batches),
        compare.Expected(np.array(losses), variables),
        num_features=len(tf.nest.flatten(spec[0])),
        shape=(replicas, way.devices),
        dtype=rounded,
    )
    return dataclasses.replace(checked, apart=apart or checked.apart)


def _prepare(
    make_step: MakeStep,
    dataset: Any,
    spec: Any,
    configs: Configs,
    way: Layout,
    replicas: int,
) -> tuple[list[Any], lower.Lowered]:
    """Returns batches for some of a layout's replicas, and their step."""
    batch = configs.data.global_batch_size // way.replicas * replicas
    data = dataclasses.replace(configs.data, global_batch_size=batch)
    configs, way = configs._replace(data=data), way._replace(replicas=replicas)
    context = tf.distribute.InputContext()
    batches = prepare.train_dataset(
        dataset, data, context, seed=configs.run.seed, step=0
    ).take(configs.run.rehearse_steps)
    _, lowered = _lower(make_step, spec, configs, way)
    return list(batches), lowered


def _flat(batches: list[Any]) -> list[list[np.ndarray]]:
    return [[t.numpy() for t in tf.nest.flatten(batch)] for batch in batches]
