"""The real train step as StableHLO: one pure function of one replica.

Its arguments are the batch and then the variables that the step touches; its
results are the loss and the variables that it changes.
"""

import re
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from errors import RequestError
from errors import RunError


class Lowered(NamedTuple):
    """A step as XLA takes it."""

    module: str
    """StableHLO, text with locations."""
    num_inputs: int
    """Tensors of a batch, the first arguments."""
    names: list[str]
    """Of the other arguments: names of the variables, or `constant_<i>`."""
    values: list[np.ndarray]
    """Their values when the step was lowered."""
    layers: list[str]
    """Names of the model's layers."""


def lower(
    step: Callable[..., tf.Tensor],
    batch_spec: Any,
    variables: Mapping[str, tf.Variable],
    layers: Collection[str],
) -> Lowered:
    """Lowers `step`.

    Args:
        step: Takes a batch, returns a loss; may assign variables.
        batch_spec: `tf.TensorSpec`s of static shape, those of one replica.
        variables: Name → variable. One that the step touches and that is not
            among them is called `variable_<i>`.
        layers: Names of the model's layers, to speak of.

    Raises:
        RunError: if XLA does not take an operation, naming it.
    """
    flat = tf.nest.flatten(batch_spec)

    # The compiler wants tensors, not a nest of them.
    def flat_step(*tensors: tf.Tensor) -> tf.Tensor:
        return step(tf.nest.pack_sequence_as(batch_spec, tensors))

    function = tf.function(flat_step, jit_compile=True, autograph=False)
    try:
        concrete = function.get_concrete_function(*flat)
        module = function.experimental_get_compiler_ir(*flat)(stage="stablehlo")
    except RequestError:
        raise
    # TensorFlow's compiler has no type of its own for what it says.
    except (tf.errors.OpError, NotImplementedError, ValueError) as error:
        raise RunError(
            f"rehearsal: XLA does not take the step ({_reason(error)}); write "
            "it in operations that XLA compiles."
        ) from error
    known = {id(each.handle): name for name, each in variables.items()}
    touched = {id(each.handle): each for each in concrete.variables}
    names, values = [], []
    for i, tensor in enumerate(concrete.captured_inputs):
        variable = touched.get(id(tensor))
        kind = "constant" if variable is None else "variable"
        names.append(known.get(id(tensor), f"{kind}_{i}"))
        values.append((tensor if variable is None else variable).numpy())
    module = _replicate(module, len(flat))
    return Lowered(module, len(flat), names, values, sorted(layers))


def _reason(error: Exception) -> str:
    """Returns which operations are not taken, or the first line."""
    text = str(error).strip()
    unsupported = re.search(r"on XLA_CPU_JIT: (.+?) \(No registered", text)
    return unsupported[1] if unsupported else text.partition("\n")[0]


def _replicate(module: str, num_inputs: int) -> str:
    """Says of variables and results that every device has the whole.

    So does a TPU strategy for what is not placed; XLA would otherwise choose,
    and give a variable that is read in parts another place than its new value.
    """
    head, name, rest = module.partition("func.func @main(")
    signature, brace, body = rest.partition(" {\n")
    arguments, arrow, results = signature.partition(") -> ")
    mark = ' {mhlo.sharding = "{replicated}"}'

    def marked(argument: re.Match[str]) -> str:
        is_input = int(argument[2]) < num_inputs
        return argument[0] if is_input else argument[1] + mark

    arguments = re.sub(r"(%arg(\d+): tensor<[^>]*>)", marked, arguments)
    # One result may go without brackets, but not with a mark.
    results = results if results.startswith("(") else f"({results})"
    results = re.sub(r"tensor<[^>]*>", lambda found: found[0] + mark, results)
    return head + name + arguments + arrow + results + brace + body
