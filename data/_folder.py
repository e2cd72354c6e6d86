"""What a user's folder of data is called and where its parts are."""

import functools
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

import options as options_lib
from data import DataConfig
from errors import RequestError

# The first of them that there is; as with tfds, a test set before another.
EVAL_FOLDERS = ("eval", "test", "validation", "val")
# Where there is none, every so many examples are held out.
HELD_OUT = 10

Options = TypeVar("Options")
_Result = TypeVar("_Result")


def once(find: Callable[..., _Result]) -> Callable[..., _Result]:
    """Remembers what a function found for a dataset and its folder.

    Nothing else of the configuration reaches it: what is found there does not
    depend on how it is batched.
    """
    found = functools.cache(find)

    @functools.wraps(find)
    def ask(config: DataConfig, *args: str) -> _Result:
        where = DataConfig(dataset=config.dataset, data_dir=config.data_dir)
        return found(where, *args)

    return ask


def parse(config: DataConfig, cls: type[Options]) -> tuple[str, Options]:
    """Reads `FOLDER,key=value,…`, or `key=value,…` beside `--data_dir`.

    Returns:
        The folder, which starts at `--data_dir` unless it is absolute, and
        the options as a `cls`.

    Raises:
        RequestError: if no folder is named, or an option is not allowed.
    """
    words = config.argument.split(",") if config.argument else []
    folder = config.data_dir
    if words and "=" not in words[0]:
        folder = tf.io.gfile.join(folder, words.pop(0))
    if not folder:
        name = config.dataset.partition(":")[0]
        raise RequestError(
            f"--dataset={config.dataset}: names no folder; write "
            f"--dataset={name}:FOLDER or --data_dir=FOLDER."
        )
    return folder, options_lib.parse(words, cls, "dataset")


def parts(folder: str, config: DataConfig) -> dict[str, str]:
    """Finds the sub-folders to train on and, if there is one, to evaluate on.

    Returns:
        Split → path; without `eval`, a part of `train` is to be held out.

    Raises:
        RequestError: if there is no sub-folder `train`.
    """
    paths = {
        name: tf.io.gfile.join(folder, name)
        for name in ("train", *EVAL_FOLDERS)
    }
    if not tf.io.gfile.isdir(paths["train"]):
        raise RequestError(
            f"--dataset={config.dataset}: there is no folder {paths['train']}; "
            "put what is to be learned from there."
        )
    found = {"train": paths["train"]}
    for name in EVAL_FOLDERS:
        if "eval" not in found and tf.io.gfile.isdir(paths[name]):
            found["eval"] = paths[name]
    return found
