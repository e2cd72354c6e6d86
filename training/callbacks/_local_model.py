"""The model as this worker has it: outputs without any other worker.

Each worker holds every weight. Read one copy at a time, in place of the
variables of the strategy, they ask nobody else; so the chief alone may look at
a few examples while the others go on.
"""

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from training.state import TrainState


class LocalModel:
    """Computes what an evaluation would, and changes nothing.

    Neither seeds nor metrics of layers move. The moving averages of the
    weights, if there are any, take their place. Use it outside the strategy's
    scope.

    Args:
        strategy: The one in whose scope `state` was made; not one for TPUs,
            whose variables are spread over cores.
        state: What is trained.
        batch_size: How many examples it computes at a time, at most.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        state: TrainState,
        batch_size: int,
    ) -> None:
        self._strategy = strategy
        self._state = state
        self._batch_size = batch_size
        model = state.model

        @tf.function(autograph=False)
        def forward(
            weights: list[tf.Tensor], others: list[tf.Tensor], features: Any
        ) -> Any:
            outputs, _ = model.stateless_call(
                weights, others, features, training=False
            )
            return outputs

        self._forward = forward

    def predict(self, features: Any) -> Any:
        """Returns the model's outputs for tensors `[N, …]`."""
        values = self._values()
        parts = [self._forward(*values, part) for part in self._parts(features)]
        return tf.nest.map_structure(lambda *part: tf.concat(part, 0), *parts)

    def output_spec(self, features: Any) -> Any:
        """Returns shapes and dtypes of a batch of outputs; computes none."""
        outputs = self._trace(features).structured_outputs
        return tf.nest.map_structure(tf.TensorSpec.from_tensor, outputs)

    def graph(self, features: Any) -> tf.compat.v1.GraphDef:
        """Returns what `predict` computes, with its weights under their names.

        The scope of the whole model is left out: its layers are at the top.
        """
        traced = self._trace(features)
        model = self._state.model
        variables = model.trainable_variables + model.non_trainable_variables
        weights = {
            tensor.op.name: variable.path
            for tensor, variable in zip(
                traced.graph.inputs, variables, strict=False
            )
        }
        graph = traced.graph.as_graph_def()
        scopes = {n.name.split("/")[0] for n in graph.node if "/" in n.name}
        scope = f"{scopes.pop()}/" if len(scopes) == 1 else ""

        def rename(name: str) -> str:
            name, colon, rest = name.partition(":")
            mark = "^" if name.startswith("^") else ""  # waits for it only
            name = name.removeprefix("^")
            name = weights.get(name, name.removeprefix(scope))
            return f"{mark}{name}{colon}{rest}"

        for node in graph.node:
            node.name = rename(node.name)
            node.input[:] = [rename(name) for name in node.input]
        return graph

    def _parts(self, features: Any) -> Iterator[Any]:
        """Yields parts of at most two sizes, each of which is traced once."""
        num_examples = len(tf.nest.flatten(features)[0])
        for start in range(0, max(num_examples, 1), self._batch_size):
            yield _slice(features, start, start + self._batch_size)

    def _trace(self, features: Any) -> Any:
        first = next(self._parts(features))
        return self._forward.get_concrete_function(*self._values(), first)

    def _values(self) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        model, averages = self._state.model, self._state.averages
        weights = averages or _variables(model.trainable_variables)
        others = _variables(model.non_trainable_variables)
        return self._local(weights), self._local(others)

    def _local(self, variables: list[tf.Variable]) -> list[tf.Tensor]:
        copies = map(self._strategy.experimental_local_results, variables)
        return [tf.identity(copy[0]) for copy in copies]


def _slice(features: Any, start: int, stop: int) -> Any:
    return tf.nest.map_structure(lambda tensor: tensor[start:stop], features)


def _variables(variables: list[keras.Variable]) -> list[tf.Variable]:
    return [variable.value for variable in variables]
