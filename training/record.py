"""What a run leaves behind for other tools: run.json.

What was asked, on what it ran, and each start. Times: seconds since 1970, UTC.
"""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from errors import RequestError
from training import checkpoint
from training import files
from training import metrics_log
from training import origin
from training import ownership
from training import workers

Config = Mapping[str, Mapping[str, Any]]

# What makes it another run if it changes. The learning rate may change.
_FIXED = (
    "seed",
    "dataset",
    "global_batch_size",
    "shard_by",
    "class_weights",
    "augmentation",
    "model",
    "model_options",
    "dtype_policy",
    "optimizer",
    "optimizer_options",
    "learning_rate_schedule",
    "global_clipnorm",
    "ema_momentum",
    "early_stopping",
    "initial_model",
)
# What decides how a checkpoint is read.
_EVALUATED = ("model", "model_options", "ema_momentum")


def open_run(strategy: tf.distribute.Strategy, config: Config) -> str:
    """Opens and takes the folder of the run; checks what is continued.

    Args:
        strategy: All its workers must call this; the chief reads.
        config: Group → flag → value of this start.

    Returns:
        The folder of the run, made if none was asked for.

    Raises:
        RequestError: on every worker, if this start would continue a run as
            another one, if another training writes the folder, or if there
            is nothing to evaluate.
    """
    run, data, model = config["run"], config["data"], config["model"]
    model_dir, text = run["model_dir"], ""
    with workers.together(strategy):
        if workers.is_chief(strategy) and model_dir:
            text = _read_if_continued(model_dir)
    if not model_dir:
        model_dir = files.create_run_dir(f"{model['model']}-{data['dataset']}")
    text = workers.broadcast(strategy, text.encode()).decode()
    if run["mode"] != "train" and not text:
        raise RequestError(
            f"--model_dir={model_dir}: there is no checkpoint to evaluate; "
            "give the folder of a run that has written one."
        )
    if text:
        fixed = _FIXED if run["mode"] == "train" else _EVALUATED
        _check_same(_parse(text, model_dir)["config"], config, fixed)
    if run["mode"] == "train":
        # Before anything of it is read: another training could add to it.
        with workers.together(strategy):
            if workers.is_chief(strategy):
                ownership.acquire(model_dir)
    return model_dir


def begin(
    strategy: tf.distribute.Strategy,
    model_dir: str,
    config: Config,
    model: keras.Model,
    step: int,
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Writes run.json, drops the metrics of later steps.

    Args:
        strategy: All its workers must call this; the chief writes.
        model_dir: Folder of the run.
        config: Group → flag → value.
        model: What is trained.
        step: The step this start continues from.
        flags: `--name=value` of those that are not at their defaults.

    Returns:
        The content of run.json; empty on a worker that is not chief.

    Raises:
        RunError: on the chief, if the folder cannot be written.
    """
    if not workers.is_chief(strategy):
        return {}
    replicas = strategy.num_replicas_in_sync
    batch = config["data"]["global_batch_size"]
    content = {
        "command": sys.argv,
        "config": config,
        "flags": flags,
        "versions": origin.versions(),
        "git": origin.describe_git(),
        "strategy": {
            "name": config["strategy"]["strategy"],
            "replicas": replicas,
            "workers": workers.count(strategy),
            "devices": list(strategy.extended.worker_devices),
        },
        "batch": {"global": batch, "per_replica": batch // replicas},
        # Where each worker reads its own files, their number sets the order.
        "order_depends_on_workers": config["data"]["shard_by"] == "files",
        "parameters": model.count_params(),
        "starts": [*_read_starts(model_dir), _now_at(step)],
    }
    with files.explained(f"--model_dir={model_dir}: cannot be written"):
        tf.io.gfile.makedirs(model_dir)
        _write(model_dir, content)
        metrics_log.cut(model_dir, step)
    return content


def end(model_dir: str, content: Mapping[str, Any], step: int) -> None:
    """Notes that the training is over, for those who follow it.

    Args:
        model_dir: Folder of the run.
        content: From `begin`; empty: nothing is written.
        step: The last one.

    Raises:
        RunError: if the folder cannot be written.
    """
    with files.explained(f"--model_dir={model_dir}: cannot be written"):
        if content:
            _write(model_dir, {**content, "ended": _now_at(step)})


def _now_at(step: int) -> dict[str, float]:
    return {"time": round(time.time(), 3), "step": step}


def has_ended(model_dir: str) -> bool:
    """Returns whether the last training into the folder is over.

    One that was interrupted is not.
    """
    try:
        return "ended" in json.loads(_read(model_dir))
    except (tf.errors.NotFoundError, ValueError):
        return False


def _read(model_dir: str) -> str:
    """Returns the text of run.json; empty if there is none."""
    path = tf.io.gfile.join(model_dir, "run.json")
    if not tf.io.gfile.exists(path):
        return ""
    with tf.io.gfile.GFile(path) as file:
        return file.read()


def _write(model_dir: str, content: Mapping[str, Any]) -> None:
    path = tf.io.gfile.join(model_dir, "run.json")
    files.write(path, json.dumps(content, indent=2) + "\n")


def _read_if_continued(model_dir: str) -> str:
    """Returns the text of run.json; empty if there is no checkpoint."""
    if not checkpoint.list_steps(model_dir):
        return ""
    text = _read(model_dir)
    if not text:
        raise RequestError(
            f"--model_dir={model_dir}: there are checkpoints but no run.json "
            "that says what made them; choose another folder."
        )
    return text


def _read_starts(model_dir: str) -> list[Any]:
    """Returns the starts before, those without a checkpoint included."""
    text = _read(model_dir)
    return _parse(text, model_dir)["starts"] if text else []


def _parse(text: str, model_dir: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
        return {"config": content["config"], "starts": content["starts"]}
    except (ValueError, LookupError, TypeError) as error:
        raise RequestError(
            f"--model_dir={model_dir}: its run.json is none of ours "
            f"({error!r}); mend it or choose another folder."
        ) from error


def _check_same(before: Config, now: Config, fixed: tuple[str, ...]) -> None:
    """Refuses to take a run for another one."""
    old, new = _flatten(before), _flatten(json.loads(json.dumps(now)))
    if fixed == _FIXED and new["learning_rate_schedule"].startswith("cosine"):
        fixed = (*fixed, "train_steps")  # the schedule ends there
    for name in fixed:
        # Flags that came later are empty in an older run.
        if old.get(name, "") != new[name]:
            other = "" if fixed == _EVALUATED else ", or another --model_dir"
            raise RequestError(
                f"--{name}={_word(new[name])}: the run to continue has "
                f"{_word(old.get(name))}; give the same{other}."
            )


def _flatten(config: Config) -> dict[str, Any]:
    return {
        name: value
        for group in config.values()
        for name, value in group.items()
    }


def _word(value: Any) -> str:
    """Returns a value as it would stand on the command line."""
    return ",".join(value) if isinstance(value, list) else str(value)
