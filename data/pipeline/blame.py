"""Which example could not be read: asked only after reading has failed.

Which rows a step has follows from (seed, step), so they are simply read once
more, one by one. That is why the way that works carries no indices.
"""

import dataclasses
import re
import types

import tensorflow as tf

from data import DataConfig
from data.pipeline import contract
from data.pipeline import decode
from data.pipeline import lookup
from data.pipeline import order
from data.pipeline import stream

# What TensorFlow puts around a reason: where it was and what it belongs to.
_AROUND = re.compile(
    r"\{\{.*?\}\} ?|\[\[.*?\]\]|\[Op:.*|"
    r"Error in user-defined function passed to .*?Iterator::\S+: "
)


def find(
    module: types.ModuleType,
    config: DataConfig,
    context: tf.distribute.InputContext,
    split: str,
    *,
    seed: int = 0,
    steps: range = range(0),
) -> str:
    """Finds the first example of some steps that cannot be read.

    A `source` is read up to there two or three times, each as slowly as when
    a run resumes; other datasets start at once.

    Args:
        module: The dataset.
        config: Its configuration. It is ignored that bad examples be skipped.
        context: Which worker this is.
        split: `train`, or `eval` for the whole of it.
        seed: Of the training order.
        steps: Training steps; not asked for `eval`.

    Returns:
        Which it is and why, as part of a sentence; empty if all can be read.
    """
    config = dataclasses.replace(config, skip_bad_examples=0)
    if contract.find_kind(module, config) == "source":
        return _find_in_source(module, config, context, split, seed, steps)
    num_examples = contract.load_info(module, config).num_examples[split]
    indices = tf.data.Dataset.range(num_examples)
    if split == "train":
        size = config.global_batch_size
        indices = order.train_indices(num_examples, size, seed, steps.start)
        indices = indices.take(len(steps)).unbatch()
    look_up = lookup.by_index(module, config, split)
    rows = indices.map(lambda index: (index, 1.0))
    place, why = _first_failure(
        decode.rows(module, config, split, look_up, rows)
    )
    if not why:
        return ""
    index = int(next(iter(indices.skip(place))))
    which = f"example {index} of split {split}"
    if hasattr(module, "describe"):
        which += f" ({module.describe(config, split, index)})"
    return f"{which}: {why}"


def reason(error: tf.errors.OpError) -> str:
    """Returns TensorFlow's reason in one line, without what is around it."""
    lines = [
        _AROUND.sub("", line).strip().rstrip(".")
        for line in error.message.split("\n")
    ]
    return next(filter(None, lines), type(error).__name__)


def _find_in_source(
    module: types.ModuleType,
    config: DataConfig,
    context: tf.distribute.InputContext,
    split: str,
    seed: int,
    steps: range,
) -> str:
    own = split == "train" and stream.reads_own_files(config, context)
    place, whose = -1, ""
    try:
        place, why = _find_row(module, config, context, split, seed, steps)
    except tf.errors.OpError:
        # Not what is made of an element, but the source itself.
        place, why = _first_failure(
            stream.own_files(module, config, context)
            if own
            else stream.whole(module, config, split)
        )
    if not why:
        return ""
    if own:
        whose = f" in the files of worker {context.input_pipeline_id}"
    return f"element {place} of the source of split {split}{whose}: {why}"


def _find_row(
    module: types.ModuleType,
    config: DataConfig,
    context: tf.distribute.InputContext,
    split: str,
    seed: int,
    steps: range,
) -> tuple[int, str]:
    """Finds an element that cannot be decoded.

    Returns:
        Its position in the source and the reason; no reason if there is none.
    """
    # Each element with its position in the source, before it is shuffled.
    numbered = types.ModuleType("numbered")
    vars(numbered).update(
        info=module.info,
        source=lambda *args: module.source(*args).enumerate(),
    )
    if split == "train":
        share = config.global_batch_size // context.num_input_pipelines
        rows = stream.train_examples(
            numbered, config, context, seed=seed, step=steps.start
        ).take(len(steps) * share)
    else:
        rows = stream.eval_examples(numbered, config, context)
    elements = rows.map(lambda row, weight: (row[1], weight))
    place, why = _first_failure(
        decode.rows(module, config, split, None, elements)
    )
    if why:
        (position, _), _ = next(iter(rows.skip(place)))
        place = int(position)
    return place, why


def _first_failure(dataset: tf.data.Dataset) -> tuple[int, str]:
    """Returns how many elements can be read before one that fails, and why."""
    place = 0
    try:
        for _ in dataset:
            place += 1
    except tf.errors.OpError as error:
        lost = isinstance(error, tf.errors.DataLossError)
        rest = "; the rest of its file is lost with it" if lost else ""
        return place, reason(error) + rest
    return place, ""
