"""Flags of how long to train, with what optimizer, and what is kept."""

from absl import flags

from flags import _read
from flags import registry
from training import EXPORTS
from training import GRADIENT_COMPRESSIONS
from training import OPTIMIZERS
from training import SCHEDULES
from training import TrainConfig

flags.DEFINE_integer(
    "train_steps",
    TrainConfig.train_steps,
    "Steps from the start of the run to its end.",
)
flags.DEFINE_integer(
    "steps_per_loop",
    TrainConfig.steps_per_loop,
    "Steps of one compiled loop; metrics are logged after each loop.",
)
flags.DEFINE_integer(
    "eval_every_steps",
    TrainConfig.eval_every_steps,
    "Steps between evaluations; 0: only after the last step.",
)
flags.DEFINE_integer(
    "checkpoint_every_steps",
    TrainConfig.checkpoint_every_steps,
    "Steps between checkpoints; 0: only after the last step.",
)
flags.DEFINE_integer(
    "checkpoints_to_keep",
    TrainConfig.checkpoints_to_keep,
    "How many of the newest checkpoints stay.",
)
flags.DEFINE_string(
    "checkpoint_errors",
    TrainConfig.checkpoint_errors,
    "What to do when a checkpoint cannot be written, as on a full disk: stop, "
    "or continue and try again at the next.",
)
flags.DEFINE_integer(
    "preemption_grace_secs",
    TrainConfig.preemption_grace_secs,
    "Seconds from the signal to stop to the end of the process, saved or not.",
)
flags.DEFINE_string(
    "optimizer",
    TrainConfig.optimizer,
    f"One of {', '.join(OPTIMIZERS)}, or the dotted path of a Keras optimizer "
    "class.",
)
flags.DEFINE_list(
    "optimizer_options",
    list(TrainConfig.optimizer_options),
    "Arguments of the optimizer's class as key=value,key=value.",
)
flags.DEFINE_float(
    "learning_rate",
    TrainConfig.learning_rate,
    "Learning rate, or the highest one where a schedule changes it; unset: "
    "0.1 for sgd, 0.001 for adam and adamw, Keras's own default for others.",
)
flags.DEFINE_string(
    "learning_rate_schedule",
    TrainConfig.learning_rate_schedule,
    f"One of {', '.join(SCHEDULES)}; cosine:warmup_steps=100 rises for 100 "
    "steps, then falls to 0 at --train_steps; "
    "piecewise:boundaries=500x800,factor=0.1 multiplies at these steps.",
)
flags.DEFINE_float(
    "weight_decay",
    TrainConfig.weight_decay,
    "Decoupled weight decay; unset: the optimizer's own default.",
)
flags.DEFINE_integer(
    "gradient_accumulation_steps",
    TrainConfig.gradient_accumulation_steps,
    "Micro-batches in which each replica works off its share of a global "
    "batch, one after the other: less memory, the same result.",
)
flags.DEFINE_string(
    "gradient_compression",
    TrainConfig.gradient_compression,
    "Form in which replicas send each other gradients, one of "
    f"{', '.join(GRADIENT_COMPRESSIONS)}; bfloat16 halves the bytes.",
)
flags.DEFINE_float(
    "global_clipnorm",
    TrainConfig.global_clipnorm,
    "Largest norm of all gradients together; unset: no clipping.",
)
flags.DEFINE_float(
    "ema_momentum",
    TrainConfig.ema_momentum,
    "Momentum of the moving average of the weights, with which the model is "
    "evaluated and exported; unset: no average.",
)
flags.DEFINE_string(
    "early_stopping",
    TrainConfig.early_stopping,
    "accuracy:patience=5 ends the run after 5 evaluations without a better "
    "accuracy. Empty: never.",
)
flags.DEFINE_boolean(
    "run_eagerly",
    TrainConfig.run_eagerly,
    "Run step by step in Python, for a debugger; slow.",
)
flags.DEFINE_boolean(
    "jit_compile",
    TrainConfig.jit_compile,
    "Compile forward and backward pass with XLA; unset: on GPU and TPU, not "
    "on CPU.",
)
flags.DEFINE_list(
    "callbacks",
    list(TrainConfig.callbacks),
    f"Any of {', '.join(registry.names('training.callbacks'))}, or dotted "
    "paths of modules of your own or of classes such as "
    "keras.callbacks.TerminateOnNaN.",
)
flags.DEFINE_list(
    "export",
    list(TrainConfig.export),
    f"Forms in which the trained model is written: {', '.join(EXPORTS)}. "
    "Empty: none.",
)
flags.DEFINE_string(
    "profile",
    TrainConfig.profile,
    "Steps to capture for TensorBoard's profile tab, such as 100:110 on the "
    "chief, or 100:110@all on every worker. Empty: none.",
)
flags.DEFINE_string(
    "initial_model",
    TrainConfig.initial_model,
    "Weights a new run starts from: a .keras file, or the folder of a run. "
    "PATH:freeze=PATTERN does not train the layers whose name fits, as in "
    "pretrained.keras:freeze=conv_*.",
)


def train_config() -> TrainConfig:
    """Reads this group. Raises `RequestError` for a value not allowed."""
    config = _read.read(TrainConfig)
    for name in config.callbacks:
        registry.check("training.callbacks", name, "callbacks")
    return config
