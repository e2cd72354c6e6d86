r"""Trains a Keras model on whatever devices there are.

    python train.py                                    # one device
    python train.py --strategy=mirrored                # all GPUs of a machine
    TF_CONFIG='{"cluster": {"worker": ["host0:2222", "host1:2222"]},
                "task": {"type": "worker", "index": 0}}' \
        python train.py --strategy=multi_worker_mirrored --model_dir=runs/two

Exit codes: 0 done; 1 the run failed; 2 the request was wrong; 42 interrupted
and resumable.
"""

import functools
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import app

import placement
from data import DatasetInfo
from errors import Interrupted
from errors import RequestError
from errors import RunError
from errors import say
from flags import command_line
from flags import registry
from strategies.cluster import preflight
from strategies.cluster import tf_config
from strategies.cluster import watch
from training import native_log
from training import preemption

if TYPE_CHECKING:
    import keras

    from training.job import Job

# Before TensorFlow is imported: its notes on its own build hide ours.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"


def main(argv: Sequence[str]) -> None:
    """Reads the flags, runs, and ends with the exit code that tells how."""
    native_log.drop_notes()
    preemption.listen(watch.leave)
    code = 0
    try:
        run(command_line.read(argv))
    except Interrupted as end:
        code = _say(42, end)
    except RequestError as error:
        code = _say(2, error)
    except RunError as error:
        code = _say(1, error)
    except Exception as error:
        # Nearer to the cause than a collective that fails: who is gone.
        if type(error).__module__.startswith("tensorflow"):
            watch.wait_for_verdict()
        raise
    watch.leave(code)
    sys.exit(code)


def _say(code: int, end: Exception) -> int:
    say(f"train.py: {end}")
    return code


def run(configs: command_line.Configs) -> dict[str, float]:
    """Trains, evaluates, rehearses or measures; returns the last metrics.

    Raises:
        RequestError, RunError, Interrupted: as `errors` says.
    """
    # The other modes are asked for on purpose, whatever the environment says.
    asked = configs.run.mode == "train"
    if asked and tf_config.is_evaluator(os.environ):
        configs = command_line.as_evaluator(configs)
    command_line.check(configs)
    if configs.run.mode == "scaling":
        import scaling

        return scaling.run(configs)
    preflight.check(configs.strategy, os.environ)
    # Below the checks: what can be refused without TensorFlow, is.
    rehearses = configs.run.mode == "rehearse"
    if rehearses:
        import rehearse

        rehearse.split_cpu(configs)
    if configs.strategy.strategy == "tpu":
        _check_input(configs)
    if rehearses:
        return rehearse.run(configs)
    return _run(configs)


def _check_input(configs: command_line.Configs) -> None:
    """Refuses data that a TPU cannot take, before it is connected."""
    from data.pipeline import prepare
    from data.pipeline import remote_host
    from strategies.cluster import tpu_name
    from strategies.placement import logical_devices

    _, strategy, data, _, _ = configs
    module = registry.load("data", data.dataset, "dataset")
    spec = prepare.element_spec(module, data)
    logical_devices.check_features(strategy, spec[0])
    if tpu_name.is_remote(strategy, os.environ):
        remote_host.check(module, data)


def _run(configs: command_line.Configs) -> dict[str, float]:
    """Trains or evaluates; returns the metrics of the last evaluation."""
    from data.pipeline import distribute
    from data.pipeline import guard
    from data.pipeline import prepare
    from strategies.placement import logical_devices
    from training import announce
    from training import checkpoint
    from training import eval_step
    from training import evaluator
    from training import export
    from training import flops
    from training import initial_model
    from training import inner_loop
    from training import job as job_lib
    from training import loop
    from training import record
    from training import runtime
    from training import state as state_lib
    from training import step as step_lib
    from training import task as task_lib
    from training import workers

    run_config, strategy_config, data_config, model_config, config = configs
    load = registry.load
    create = load("strategies", strategy_config.strategy, "strategy").create
    strategy = create(strategy_config)
    preemption.listen_again()
    dataset = load("data", data_config.dataset, "dataset")
    model = load("model", model_config.model, "model")
    # What is read, how it is spread, and in what order.
    feed, seed = (strategy, dataset, data_config), run_config.seed
    runtime.configure(run_config, model_config.dtype_policy, config.run_eagerly)
    words = command_line.as_dict(configs)
    workers.check_same_config(strategy, words)
    distribute.check(strategy, data_config)

    with workers.together(strategy):
        info = dataset.info(data_config)
        spec = prepare.element_spec(dataset, data_config)
    workers.check_same_data(strategy, data_config.dataset, info)
    placement.use(logical_devices.create(strategy, strategy_config))
    task = task_lib.resolve(model, info.task)
    build = functools.partial(model.build, model_config, spec, info.num_outputs)
    with strategy.scope():
        state = state_lib.create(build(), config)
    batch_size, stop = data_config.global_batch_size, job_lib.make_stop()
    count_skipped = data_config.skip_bad_examples > 0
    train_loop = step_lib.make_train_loop(
        strategy, state, task, batch_size, config, seed, stop, count_skipped
    )
    evaluate = inner_loop.make_evaluate(
        eval_step.make_eval_loop(strategy, state.model, task),
        distribute.eval_dataset(*feed),
        state,
        prepare.num_eval_steps(dataset, data_config),
        batch_size,
    )
    find_bad = functools.partial(distribute.find_bad, *feed)
    evaluate = guard.guard_eval(evaluate, find_bad)

    state.stopping.check(["loss", *(m.name for m in task.make_metrics())])
    # A request that is refused up to here leaves no folder behind.
    if run_config.mode != "train":
        return evaluator.run(strategy, state, evaluate, words)
    export.check(strategy, build, config.export)
    initial_model.load(strategy, state, config, run_config.model_dir)
    model_dir = record.open_run(strategy, words)
    checkpoint.restore(strategy, state.variables(), model_dir)
    state_lib.follow_flags(state, config)
    step = state.steps_done()
    announce.start(strategy, model_dir, step, config.train_steps)
    flags = tuple(command_line.as_words(configs))
    content = record.begin(strategy, model_dir, words, state.model, step, flags)
    with workers.together(strategy):
        batches = distribute.train_dataset(*feed, seed=seed, step=step)
    iterator = iter(batches)
    train = inner_loop.make_train(train_loop, iterator, state, batch_size)
    train = guard.guard_train(
        train, find_bad, data_config, seed=seed, step=state.steps_done
    )
    share = batch_size // strategy.num_replicas_in_sync
    count = functools.partial(flops.of_loop, train_loop, iterator, share)
    job = job_lib.Job(strategy, state, config, model_dir, stop, count)
    result = loop.run(job, train, evaluate, _make_callbacks(job, configs, info))
    export.save(strategy, build, state, model_dir, config.export)
    record.end(model_dir, content, state.steps_done())
    announce.result(state.steps_done(), result)
    announce.next_commands(strategy, model_dir, config)
    return result


def _make_callbacks(
    job: "Job", configs: command_line.Configs, info: DatasetInfo
) -> list["keras.callbacks.Callback"]:
    from data.pipeline import sample
    from training import callbacks as callbacks_lib
    from training import workers

    dataset = registry.load("data", configs.data.dataset, "dataset")
    context = callbacks_lib.Context(
        job.state,
        job.model_dir,
        workers.is_chief(job.strategy),
        job.state.steps_done(),
        job.config.train_steps,
        job.strategy,
        info.num_examples["train"] / configs.data.global_batch_size,
        command_line.as_dict(configs),
        functools.partial(sample.first, dataset, configs.data),
    )
    return [
        callbacks_lib.create(
            name,
            registry.load_or_class("training.callbacks", name, "callbacks"),
            context,
        )
        for name in job.config.callbacks
    ]


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
