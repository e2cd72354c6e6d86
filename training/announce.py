"""What a run says of itself in plain words, before and after."""

import os
import shlex
import sys
from collections.abc import Container
from collections.abc import Mapping
from collections.abc import Sequence

import tensorflow as tf

from training import TrainConfig
from training import workers

_TRAIN = "train.py"


def place(strategy: tf.distribute.Strategy) -> None:
    """Says on every worker where it takes part."""
    count = workers.count(strategy)
    replicas = strategy.num_replicas_in_sync
    local = strategy.extended.worker_devices
    devices = ", ".join(device.rpartition("device:")[2] for device in local)
    text = f"{_count(count, 'worker')}, {_count(replicas, 'replica')}"
    print(f"{text}; here: {devices or 'no device'}", flush=True)


def start(
    strategy: tf.distribute.Strategy, model_dir: str, step: int, end: int
) -> None:
    """Says where a worker takes part, and on the chief where training stands.

    Args:
        strategy: Where it runs.
        model_dir: Folder of the run.
        step: The step this start continues from.
        end: The step at which the run ends.
    """
    place(strategy)
    if not workers.is_chief(strategy):
        return
    if step == 0:
        text = f"Starting at step 0 of {end}"
    elif step < end:
        text = f"Continuing at step {step} of {end}"
    else:
        text = f"Already at step {step} of {end}"
    print(f"{text}; everything is in {model_dir}", flush=True)


def result(step: int, evaluation: Mapping[str, float]) -> None:
    """Says, on every worker, how good the model is."""
    words = ", ".join(
        f"{name} {value:.8g}"
        for name, value in evaluation.items()
        if not name.endswith(("_per_sec", "_rate"))
    )
    print(f"Evaluation at step {step}: {words}", flush=True)


def next_commands(
    strategy: tf.distribute.Strategy,
    model_dir: str,
    config: TrainConfig,
) -> None:
    """Says, on the chief, what there is to look at and how to go on."""
    if not workers.is_chief(strategy):
        return
    python = _python()
    changed = {"model_dir": model_dir}
    # A run that has ended early, or with its schedule, has no more to train.
    endless = not config.learning_rate_schedule.startswith("cosine")
    if endless and not config.early_stopping:
        changed["train_steps"] = str(2 * config.train_steps)
    # Set by the launcher: how many workers. It chooses the strategy itself.
    launched = os.environ.get("LAUNCHED")
    program = f"launch.py --num_workers={launched} --" if launched else _TRAIN
    without = {*changed, "strategy"} if launched else changed
    words = _without(without, sys.argv[1:])
    words += [f"--{name}={value}" for name, value in changed.items()]
    page = f"{model_dir}/report.html"
    if "report" not in config.callbacks:
        page = f"{python} -m training.report {model_dir}"
    lines = {
        "Look at it": f"{python} -m tensorboard.main --logdir {model_dir}",
        "As a page": page,
        "Continue it": f"{python} {program} {shlex.join(words)}",
        "Exported": config.export and f"{model_dir}/export",
    }
    for label, text in lines.items():
        if text:
            print(f"{label + ':':<13}{text}")


def _python() -> str:
    """Returns how this interpreter is called from the current folder."""
    path = os.path.relpath(sys.executable)
    return "python" if path.startswith("..") else path


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _without(names: Container[str], words: Sequence[str]) -> list[str]:
    """Removes flags, written `--name=value` or `--name value`."""
    kept, follows = [], False
    for word in words:
        name, equals, _ = word.lstrip("-").partition("=")
        removed = word.startswith("-") and name in names
        if not removed and not follows:
            kept.append(word)
        follows = removed and not equals
    return kept
