"""What is learned: config + shapes → `keras.Model`.

A public module here is a model; its name is the value of `--model`. It
provides

    Options      a frozen dataclass, every field with a default; set by
                 `--model_options=key=value,…`
    build(config: ModelConfig, element_spec, num_outputs: int) -> keras.Model

`element_spec` is the structure of one batch, `(features, labels, weights)`,
of `tf.TensorSpec`s whose first dimension, the batch, is None. `num_outputs`
is the number of classes, or of target values of a regression. The model maps
features to logits (classification) or predictions `[B, num_outputs]`. Give
every layer an explicit name: checkpoints go by name. Optionally

    per_example_loss(labels, outputs) -> [B]
    make_metrics() -> list[keras.Metric]     updated with (labels, outputs,
                                             sample_weight)

without which the dataset's task decides. No module here knows of strategies,
flags or files; `build` is called where variables belong, after
`keras.config.set_dtype_policy(config.dtype_policy)`, so that plain Keras
layers follow the policy. Only the last layer must see to it that outputs are
float32 or float64: `dtype=keras.config.dtype_policy().variable_dtype`.
"""

import dataclasses

from errors import RequestError

DTYPE_POLICIES = ("float32", "mixed_bfloat16", "mixed_float16", "float64")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What `--model` and its companions say."""

    model: str = "equilibrium"
    """Name of a module in `model`, or dotted path to a module of your own."""
    model_options: tuple[str, ...] = ()
    """`key=value` each; the keys are the fields of the model's `Options`."""
    dtype_policy: str = "float32"
    """Keras dtype policy that all layers follow."""

    def __post_init__(self) -> None:
        if self.dtype_policy not in DTYPE_POLICIES:
            raise RequestError(
                f"--dtype_policy={self.dtype_policy}: must be one of "
                f"{', '.join(DTYPE_POLICIES)}."
            )
