"""Which layer an operation belongs to, by the name TensorFlow gave it.

`gradient_tape/cnn_1/conv_0_1/convolution/Conv2DBackpropFilter` is `conv_0`,
backward: Keras opens a name scope for the model and one for each layer, and
TensorFlow numbers a scope that it opens again.
"""

import re
from collections.abc import Collection

# Parts of a path that control flow and calls put in.
_PLUMBING = re.compile(
    r"(gradient_tape|while|body|cond|then|else|loop_body"
    r"|(Stateful)?PartitionedCall)?(_?\d+)?"
)
_NUMBER = re.compile(r"_(\d+)$")


def split(op_name: str) -> list[str]:
    """Returns the names of operations that XLA merged into one.

    `a/(b/x:c/y)` is `a/b/x` and `a/c/y`.
    """
    merged = re.fullmatch(r"([^()]*)\((.*)\)(.*)", op_name)
    if not merged or ":" not in merged[2]:
        return [op_name]
    return [merged[1] + part + merged[3] for part in merged[2].split(":")]


def layer(op_name: str, layers: Collection[str] = ()) -> str:
    """Returns the layer of an operation, "" if it is none's.

    Args:
        op_name: A path as in the module's docstring.
        layers: Names of the model's layers, if known. Otherwise a path is
            taken for model, layer, operation; an optimizer's is shorter.
    """
    parts = op_name.split("/")
    for part in parts:
        for name in (part, _NUMBER.sub("", part)):
            if name in layers:
                return name
    if layers:
        return ""
    while parts and _PLUMBING.fullmatch(parts[0]):
        parts = parts[1:]
    if len(parts) < 3:
        return ""
    again = _NUMBER.search(parts[0])
    # The model's scope was opened again, and so was the layer's.
    return parts[1].removesuffix(again[0]) if again else parts[1]


def direction(op_name: str) -> str:
    """Returns `backward` or `forward`; "" without a name."""
    if not op_name:
        return ""
    return "backward" if "gradient_tape" in op_name else "forward"
