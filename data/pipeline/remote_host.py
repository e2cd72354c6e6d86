"""Whether an input pipeline can run on another machine.

The host of a remote TPU reads the data itself. It has none of this machine's
files, and no Python.
"""

import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from data import DataConfig
from data.pipeline import augment
from data.pipeline import contract
from data.pipeline import decode
from errors import RequestError

# What `py_function`, `numpy_function` and `from_generator` become.
_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
_ADVICE = "or run on the TPU VM with --tpu=local"


def check(module: types.ModuleType, config: DataConfig) -> None:
    """Looks for Python and for local files in the graphs of both splits.

    Nothing is read. A path that the graph computes is not found. Afterwards
    the module is forgotten, as is that of an augmentation: a connection takes
    the tables it has made from it, so it must be imported once more.

    Args:
        module: The dataset.
        config: Its configuration.

    Raises:
        RequestError: if there is either, or the module breaks its contract.
    """
    contract.load_info(module, config)
    for split in ("train", "eval"):
        for node in _nodes(_elements(module, config, split)):
            if node.op in _PYTHON:
                raise RequestError(
                    f"--dataset={config.dataset}: reading {split} runs Python "
                    f"({node.op}), which the host of a remote TPU has not; "
                    f"write it in TensorFlow, {_ADVICE}."
                )
            if node.op == "Const":
                _check_paths(node, split, config)
    sys.modules.pop(module.__name__, None)


def _elements(
    module: types.ModuleType, config: DataConfig, split: str
) -> tf.data.Dataset:
    """Chains what the module gives, without the order of a training."""
    kind = contract.find_kind(module, config)
    if kind == "source":
        elements = module.source(config, split, (0, 1))
    elif kind == "arrays":
        # Arrays travel inside the graph; one row of them shows the rest.
        first = tf.nest.map_structure(
            lambda array: array[:1], module.arrays(config, split)
        )
        elements = tf.data.Dataset.from_tensor_slices(first)
    else:
        elements = tf.data.Dataset.range(1).map(
            lambda index: module.example(config, split, index)
        )
    if hasattr(module, "preprocess"):
        # In pairs, because `map` would take an element's parts apart.
        pairs = tf.data.Dataset.zip((elements, tf.data.Dataset.range(1)))
        elements = decode.apply(
            lambda element: module.preprocess(config, split, element), pairs
        ).map(lambda example, _: example)
    change = augment.load(config, contract.load_info(module, config))
    if not change or split == "eval":
        return elements
    # Like the module, it may hold tables of this connection.
    sys.modules.pop(change.__module__, None)
    seed = tf.zeros([2], tf.int32)
    return elements.map(
        lambda features, labels, *_: change(features, labels, seed)
    )


def _nodes(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Lists the nodes of a dataset's graph, those of its functions too."""
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(dataset),
        # 1: tables and counters may stay behind, as nothing is run.
        external_state_policy=1,
    )
    graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _check_paths(node: Any, split: str, config: DataConfig) -> None:
    tensor = node.attr["value"].tensor
    if tensor.dtype != tf.string.as_datatype_enum:
        return
    # Several strings are packed in a way that only TensorFlow reads.
    texts = tf.io.parse_tensor(tensor.SerializeToString(), tf.string)
    for text in tf.reshape(texts, [-1]).numpy():
        path = os.fsdecode(text)
        # A word that happens to be the name of a file is no path.
        if os.sep in path and "\0" not in path and os.path.isfile(path):
            raise RequestError(
                f"--dataset={config.dataset}: {split} is read from {path}, "
                "which the host of a remote TPU cannot reach; put the data "
                f"into a bucket, {_ADVICE}."
            )
