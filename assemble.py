"""Puts together what a run is made of, in the order in which it must come.

The one place, with `rehearse`, that knows how strategy, data and model meet.
Nothing here reads or writes `model_dir`; callbacks are told its name.
"""

import dataclasses
import functools
import os
import types
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

import placement
from data import DatasetInfo
from data.pipeline import distribute
from data.pipeline import guard
from data.pipeline import prepare
from data.pipeline import remote_host
from data.pipeline import sample
from flags import command_line
from flags import registry
from flags.command_line import Configs
from strategies.cluster import tpu_name
from strategies.placement import logical_devices
from training import callbacks as callbacks_lib
from training import eval_step
from training import flops
from training import inner_loop
from training import preemption
from training import runtime
from training import state as state_lib
from training import step as step_lib
from training import task as task_lib
from training import workers
from training.inner_loop import Loop
from training.job import Job
from training.job import make_stop
from training.state import TrainState
from training.task import Task


@dataclasses.dataclass(frozen=True)
class Parts:
    """What one run, whatever its mode, is made of."""

    configs: Configs
    strategy: tf.distribute.Strategy
    dataset: types.ModuleType
    """As the contract of `data` says."""
    info: DatasetInfo
    task: Task
    """Loss and metrics."""
    build: Callable[[], keras.Model]
    """Makes the model once more, in the scope that is open."""
    state: TrainState
    """Model and optimizer, made in the scope of `strategy`."""
    stop: tf.Variable
    """As for `Job`."""

    @property
    def feed(self) -> tuple[Any, ...]:
        """Who is fed, with which dataset, how: `distribute`'s first three."""
        return self.strategy, self.dataset, self.configs.data

    @property
    def flags(self) -> dict[str, dict[str, Any]]:
        """Group → flag → value."""
        return command_line.as_dict(self.configs)

    def with_batch_size(self, size: int) -> "Parts":
        """Returns the same with `size` examples in a global batch."""
        data = dataclasses.replace(self.configs.data, global_batch_size=size)
        configs = self.configs._replace(data=data)
        return dataclasses.replace(self, configs=configs)


def check_input(configs: Configs) -> None:
    """Refuses data that a TPU cannot take, before it is connected."""
    strategy, data = configs.strategy, configs.data
    dataset = registry.load("data", data.dataset, "dataset")
    spec = prepare.element_spec(dataset, data)
    logical_devices.check_features(strategy, spec[0])
    if tpu_name.is_remote(strategy, os.environ):
        remote_host.check(dataset, data)


def make_parts(configs: Configs) -> Parts:
    """Makes the strategy, finds the data, and builds the model in scope.

    Raises:
        RequestError: if the workers were not started alike, or what is asked
            for cannot be had.
    """
    _, strategy_config, data, model_config, _ = configs
    name = strategy_config.strategy
    module = registry.load("strategies", name, "strategy", "create")
    strategy = module.create(strategy_config)
    preemption.listen_again()
    dataset = registry.load("data", data.dataset, "dataset", "info")
    model = registry.load("model", model_config.model, "model", "build")
    workers.check_same_config(strategy, command_line.as_dict(configs))
    distribute.check(strategy, data)
    with workers.together(strategy):
        info = dataset.info(data)
        spec = prepare.element_spec(dataset, data)
    workers.check_same_data(strategy, data.dataset, info)
    placement.use(logical_devices.create(strategy, strategy_config))
    build = functools.partial(model.build, model_config, spec, info.num_outputs)
    task = task_lib.resolve(model, info.task)
    state = make_state(configs, strategy, task, build)
    stop = make_stop()
    return Parts(configs, strategy, dataset, info, task, build, state, stop)


def make_state(
    configs: Configs,
    strategy: tf.distribute.Strategy,
    task: Task,
    build: Callable[[], keras.Model],
) -> TrainState:
    """Builds model, optimizer and metrics in the scope of `strategy`.

    The same names and values each time, from the same seed.

    Raises:
        RequestError: for what model or optimizer cannot be, or early stopping
            by what no evaluation has.
    """
    config, policy = configs.train, configs.model.dtype_policy
    runtime.configure(configs.run, policy, config.run_eagerly)
    with strategy.scope():
        state = state_lib.create(build(), config)
        # The first call makes them; outside of the scope each worker would
        # count its own examples.
        names = [metric.name for metric in task.make_metrics()]
    state.stopping.check(["loss", *names])
    return state


def make_train_loop(parts: Parts) -> Loop:
    """Returns the compiled loop of training steps."""
    run, _, data, _, config = parts.configs
    return step_lib.make_train_loop(
        parts.strategy,
        parts.state,
        parts.task,
        data.global_batch_size,
        config,
        run.seed,
        parts.stop,
        data.skip_bad_examples > 0,
    )


def make_evaluate(parts: Parts) -> Callable[[], dict[str, float]]:
    """Returns a function that evaluates the model on all of split `eval`."""
    data = parts.configs.data
    evaluate = inner_loop.make_evaluate(
        eval_step.make_eval_loop(parts.strategy, parts.state.model, parts.task),
        distribute.eval_dataset(*parts.feed),
        parts.state,
        prepare.num_eval_steps(parts.dataset, data),
        data.global_batch_size,
    )
    return guard.guard_eval(evaluate, _find_bad(parts))


def make_iterator(parts: Parts, step: int = 0) -> Iterator[Any]:
    """Returns the distributed global batches of training from `step` on."""
    seed = parts.configs.run.seed
    with workers.together(parts.strategy):
        return iter(distribute.train_dataset(*parts.feed, seed=seed, step=step))


def make_train(
    parts: Parts, loop: Loop, iterator: Iterator[Any]
) -> Callable[[int], dict[str, float]]:
    """Returns a function that trains for a number of steps."""
    run, _, data, _, _ = parts.configs
    size, state = data.global_batch_size, parts.state
    return guard.guard_train(
        inner_loop.make_train(loop, iterator, state, size),
        _find_bad(parts),
        data,
        seed=run.seed,
        step=state.steps_done,
    )


def make_job(
    parts: Parts, model_dir: str, loop: Loop, iterator: Iterator[Any]
) -> Job:
    """Returns what the parts of a training share."""
    strategy = parts.strategy
    size = parts.configs.data.global_batch_size
    rows = size // strategy.num_replicas_in_sync
    count = functools.partial(flops.of_loop, loop, iterator, rows)
    config = parts.configs.train
    return Job(strategy, parts.state, config, model_dir, parts.stop, count)


def make_callbacks(parts: Parts, job: Job) -> list[keras.callbacks.Callback]:
    """Makes the values of `--callbacks`."""
    data = parts.configs.data
    context = callbacks_lib.Context(
        state=job.state,
        model_dir=job.model_dir,
        is_chief=workers.is_chief(job.strategy),
        start_step=job.state.steps_done(),
        train_steps=job.config.train_steps,
        strategy=job.strategy,
        steps_per_epoch=parts.info.num_examples["train"]
        / data.global_batch_size,
        config=parts.flags,
        sample=functools.partial(sample.first, parts.dataset, data),
    )
    load = registry.load_or_class
    return [
        callbacks_lib.create(
            name, load("training.callbacks", name, "callbacks"), context
        )
        for name in job.config.callbacks
    ]


def _find_bad(parts: Parts) -> Callable[..., str]:
    return functools.partial(distribute.find_bad, *parts.feed)
