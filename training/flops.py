"""Operations of a traced step, counted from the shapes in its graph.

As usual where efficiency is stated, only products count: matrix products,
convolutions and einsums, forward and backward, two operations for each
multiplication and addition. What is done element by element is some hundredths
of it in a model worth measuring.
"""

import math
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

# How often the body of a loop runs is not in the graph.
_LOOPS = ("While", "StatelessWhile")

Shapes = list[list[int]]
# attributes, shapes of inputs and outputs → multiplications
Count = Callable[[Mapping[str, Any], Shapes, Shapes], float]


def of_loop(loop: Any, iterator: Any, batch: int) -> float:
    """Returns the operations of a step of a loop that has been called.

    Args:
        loop: From `step.make_train_loop`.
        iterator: What it was called with.
        batch: Examples of a replica.

    Returns:
        As `count`. NaN, too, where nothing is traced.
    """
    if tf.config.functions_run_eagerly():
        return math.nan
    # Finds the trace that there is.
    traced = loop.get_concrete_function(iterator, tf.constant(1, tf.int64))
    return count(traced, batch)


def count(function: Any, batch: int) -> float:
    """Returns the operations of one step of a compiled training loop.

    Args:
        function: Concrete function of the loop, its one `while` being the
            loop over steps.
        batch: Examples of a replica; what stands for an unknown size.

    Returns:
        Those of all replicas of this process; under a strategy for TPUs, of
        one replica. NaN, if the step has a loop of its own, which runs as often
        as its data say, or a product of tensors of unknown shape.
    """
    definition = function.graph.as_graph_def(add_shapes=True)
    library = {
        each.signature.name: each for each in definition.library.function
    }
    loops = [node for node in definition.node if node.op in _LOOPS]
    if len(loops) != 1:
        return math.nan
    return _of_function(loops[0].attr["body"].func.name, library, batch)


def _of_function(name: str, library: Mapping[str, Any], batch: int) -> float:
    """Adds up the nodes of a function, and of those that it calls."""
    function = library[name]
    shapes: dict[str, Shapes] = {}
    for index, argument in enumerate(function.signature.input_arg):
        given = function.arg_attr[index].attr["_output_shapes"].list.shape
        shapes[argument.name] = _sizes(given, batch)
    for node in function.node_def:
        given = node.attr["_output_shapes"].list.shape
        shapes[node.name] = _sizes(given, batch)
    total = 0.0
    for node in _used(function):
        if node.op in _LOOPS:
            return math.nan
        if node.op in _PRODUCTS:
            inputs = [
                _shape_of(word, shapes)
                for word in node.input
                if not word.startswith("^")
            ]
            if not all([*inputs, *shapes[node.name]]):
                return math.nan  # Python made one of them, say
            product = _PRODUCTS[node.op](node.attr, inputs, shapes[node.name])
            total += 2 * product
        called = {
            attribute.func.name
            for attribute in node.attr.values()
            if attribute.WhichOneof("value") == "func"
        }
        total += sum(_of_function(each, library, batch) for each in called)
    return total


def _used(function: Any) -> list[Any]:
    """Returns the nodes that something depends on.

    The gradient of a first layer's inputs, say, is in the graph, but is not
    computed.
    """
    nodes = {node.name: node for node in function.node_def}
    waiting = [*function.ret.values(), *function.control_ret.values()]
    used = {}
    while waiting:
        name = waiting.pop().lstrip("^").partition(":")[0]
        if name in nodes:
            used[name] = nodes.pop(name)
            waiting += used[name].input
    return list(used.values())


def _sizes(shapes: Any, batch: int) -> Shapes:
    return [
        [each.size if each.size >= 0 else batch for each in shape.dim]
        for shape in shapes
    ]


def _shape_of(word: str, shapes: Mapping[str, Shapes]) -> list[int]:
    """Returns the shape of an input such as `node:output:0`.

    The name of the output is not looked at: of operations with several names,
    only the first feeds a product.
    """
    name, *port = word.split(":")
    known = shapes.get(name, [])
    index = int(port[-1]) if port else 0
    return known[index] if index < len(known) else []


def _matmul(
    attributes: Mapping[str, Any], inputs: Shapes, out: Shapes
) -> float:
    transposed = attributes["transpose_a"].b or attributes["adj_x"].b
    return math.prod(out[0]) * inputs[0][-2 if transposed else -1]


def _einsum(
    attributes: Mapping[str, Any], inputs: Shapes, out: Shapes
) -> float:
    """Returns the product of all sizes that occur."""
    words = attributes["equation"].s.decode().partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for word, shape in zip(words, inputs, strict=True):
        before, dots, after = word.partition("...")
        sizes |= zip(before, shape, strict=False)
        if dots:
            shape = shape[len(before) :]
            sizes["..."] = math.prod(shape[: len(shape) - len(after)])
            sizes |= zip(after, shape[len(shape) - len(after) :], strict=True)
    return math.prod(sizes.values())


def _convolution(
    outputs: Callable[[Shapes, Shapes], list[int]],
    filters: Callable[[Shapes, Shapes], list[int]],
    is_depthwise: bool = False,
) -> Count:
    """Counts by the outputs and the filters `[…, in, out]` of a convolution.

    Filters that work on each channel alone are `[…, in, multiplier]`.
    """

    def count(_: Mapping[str, Any], inputs: Shapes, out: Shapes) -> float:
        sizes = filters(inputs, out)[: -2 if is_depthwise else -1]
        return math.prod(outputs(inputs, out)) * math.prod(sizes)

    return count


def _forward(is_depthwise: bool = False) -> Count:
    return _convolution(lambda _, o: o[0], lambda i, _: i[1], is_depthwise)


def _of_inputs(is_depthwise: bool = False) -> Count:
    """Its inputs: sizes, filters, gradient of the outputs."""
    return _convolution(lambda i, _: i[2], lambda i, _: i[1], is_depthwise)


def _of_filters(is_depthwise: bool = False) -> Count:
    """Its inputs: inputs, sizes, gradient of the outputs."""
    return _convolution(lambda i, _: i[2], lambda _, o: o[0], is_depthwise)


_PRODUCTS: dict[str, Count] = {
    "MatMul": _matmul,
    "BatchMatMulV2": _matmul,
    "BatchMatMulV3": _matmul,
    "Einsum": _einsum,
    "Conv2D": _forward(),
    "Conv2DBackpropInput": _of_inputs(),
    "Conv2DBackpropFilter": _of_filters(),
    "Conv3D": _forward(),
    "Conv3DBackpropInputV2": _of_inputs(),
    "Conv3DBackpropFilterV2": _of_filters(),
    "DepthwiseConv2dNative": _forward(is_depthwise=True),
    "DepthwiseConv2dNativeBackpropInput": _of_inputs(is_depthwise=True),
    "DepthwiseConv2dNativeBackpropFilter": _of_filters(is_depthwise=True),
}
