r"""Trains a Keras model on whatever devices there are.

    python train.py                                    # one device
    python train.py --strategy=mirrored                # all GPUs of a machine
    TF_CONFIG='{"cluster": {"worker": ["host0:2222", "host1:2222"]},
                "task": {"type": "worker", "index": 0}}' \
        python train.py --strategy=multi_worker_mirrored --model_dir=runs/two

Exit codes: 0 done; 1 the run failed; 2 the request was wrong; 42 interrupted
and resumable.
"""

import os
import sys
from collections.abc import Sequence

from absl import app

from errors import INTERRUPTED
from errors import Interrupted
from errors import RequestError
from errors import RunError
from errors import say
from flags import command_line
from strategies.cluster import preflight
from strategies.cluster import tf_config
from strategies.cluster import watch
from training import native_log
from training import preemption

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
        code = _say(INTERRUPTED, end)
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
    if configs.run.mode == "train" and tf_config.is_evaluator(os.environ):
        configs = command_line.as_evaluator(configs)
    command_line.check(configs)
    if configs.run.mode == "scaling":
        import scaling

        return scaling.run(configs)
    preflight.check(configs.strategy, os.environ)
    # Below the checks: what can be refused without TensorFlow, is.
    if configs.run.mode == "rehearse":
        import rehearse

        return rehearse.run(configs)
    return _train_or_evaluate(configs)


def _train_or_evaluate(configs: command_line.Configs) -> dict[str, float]:
    import assemble
    from training import announce
    from training import checkpoint
    from training import evaluator
    from training import export
    from training import initial_model
    from training import loop
    from training import record
    from training import state as state_lib

    if configs.strategy.strategy == "tpu":
        assemble.check_input(configs)
    parts, config = assemble.make_parts(configs), configs.train
    strategy, state, flags = parts.strategy, parts.state, parts.flags
    train_loop = assemble.make_train_loop(parts)
    evaluate = assemble.make_evaluate(parts)
    # A request that is refused up to here leaves no folder behind.
    if configs.run.mode != "train":
        return evaluator.run(strategy, state, evaluate, flags)
    export.check(strategy, parts.build, config.export)
    initial_model.load(strategy, state, config, configs.run.model_dir)
    model_dir = record.open_run(strategy, flags)
    checkpoint.restore(strategy, state.variables(), model_dir)
    state_lib.follow_flags(state, config)
    step = state.steps_done()
    announce.start(strategy, model_dir, step, config.train_steps)
    words = tuple(command_line.as_words(configs))
    content = record.begin(strategy, model_dir, flags, state.model, step, words)
    iterator = assemble.make_iterator(parts, step)
    train = assemble.make_train(parts, train_loop, iterator)
    job = assemble.make_job(parts, model_dir, train_loop, iterator)
    callbacks = assemble.make_callbacks(parts, job)
    result = loop.run(job, train, evaluate, callbacks)
    export.save(strategy, parts.build, state, model_dir, config.export)
    record.end(model_dir, content, state.steps_done())
    announce.result(state.steps_done(), result)
    announce.next_commands(strategy, model_dir, config)
    return result


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
