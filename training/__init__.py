"""The loop: state, step, boundaries, and what a run leaves behind.

`training` receives strategy, datasets and model as TensorFlow's and Keras's
own types and imports none of the packages that made them.

    state        what a checkpoint holds; with average, loss_scale, stopping
    task         default loss and metrics
    optimizer    optimizer and learning rate schedule
    eval_step    the step of an evaluation
    step         one optimizer update on all replicas; with forward,
                 gradients, statistics, randomness
    inner_loop   many steps in one compiled call
    limits       how fast the step is with and without each of its parts
    loop         the outer loop in Python; with guard, job, preemption
    evaluator    evaluation of checkpoints, apart from a training
    predict      outputs for a whole dataset, in its order
    checkpoint   restore or refuse; with checkpoint_writer, checkpoint_files
    ownership    one training for each folder
    usage        what a run makes of its machine; flops, notes, profile
    record       run.json, with origin; metrics_log: metrics.jsonl; files
    export       the trained model for others; exported reads it again
    initial_model  weights to start from, and which of them stay
    workers      what several processes must agree on
    runtime      settings that hold for the whole process; native_log
    announce     what a run says of itself
    report/     pages that show runs without a server
    callbacks/  what is shown or reported between inner loops; a public module
                there is a callback and provides
                `make(context: Context) -> keras.callbacks.Callback`
"""

import dataclasses
import math
import re

from errors import RequestError

MODES = ("train", "evaluate", "follow", "rehearse", "scaling")
CHECKPOINT_ERRORS = ("stop", "continue")
# Of a path: folder of the run, folder in it, step, part of the checkpoint.
CHECKPOINT = (
    r"newest|best|\d+|(?:(.+)/)?(checkpoints|best)/step-(\d+)"
    r"(?:\.(?:json|index|data-00000-of-00001))?"
)
EXPORTS = ("keras", "saved_model", "onnx")
OPTIMIZERS = ("sgd", "adam", "adamw")
GRADIENT_COMPRESSIONS = ("none", "bfloat16")
SCHEDULES = ("constant", "cosine", "piecewise")
PROFILE = r"(\d+):(\d+)(@all)?"  # start, stop, on every worker


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What the run is, apart from what it trains."""

    mode: str = "train"
    """`train`; `evaluate` a checkpoint; or `follow` a training that
    runs elsewhere and evaluate each new one, as an evaluator task does; or
    `rehearse` a run: build everything, train nothing; or `scaling`: measure
    what several replicas or workers of this machine gain, and what limits
    them."""
    model_dir: str = ""
    """Folder of everything the run writes. What is there is continued. Empty:
    a new folder under `runs/`."""
    checkpoint: str = "newest"
    """What `evaluate` reads: `newest`, `best`, a step, or a path such as
    `runs/a/best/step-500`, which stands for `model_dir` too."""
    seed: int = 0
    """Seed of weights, order of data and random layers."""
    deterministic: bool = False
    """Whether every operation must give the same bits each time, where a
    device offers a faster way that does not."""
    rehearse_steps: int = 5
    """Steps that a rehearsal for a TPU runs on this machine; 0: it compiles
    only."""
    scaling_secs: int = 5
    """Seconds for each measurement of `--mode=scaling`. Positive."""

    def __post_init__(self) -> None:
        _check_choice("mode", self.mode, MODES)
        _check_range("seed", self.seed, 0)
        _check_range("rehearse_steps", self.rehearse_steps, 0)
        _check_range("scaling_secs", self.scaling_secs, 1)
        if self.seed >= 2**31:
            raise RequestError(f"--seed={self.seed}: must be below {2**31}.")
        _check_checkpoint(self)
        placed = self.model_dir or "/" in self.checkpoint
        if self.mode in ("evaluate", "follow") and not placed:
            raise RequestError(
                f"--mode={self.mode} needs --model_dir, the folder of the run "
                "to evaluate."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long, with what optimizer, and what is kept."""

    train_steps: int = 1500
    """Steps from the start of the run to its end."""
    steps_per_loop: int = 100
    """Steps of one compiled loop, between which Python has its turn."""
    eval_every_steps: int = 500
    """Steps between evaluations; 0: only after the last step."""
    checkpoint_every_steps: int = 500
    """Steps between checkpoints; 0: only after the last step."""
    checkpoints_to_keep: int = 3
    """How many of the newest checkpoints stay."""
    checkpoint_errors: str = "stop"
    """`stop` if a checkpoint cannot be written, as on a full disk; or
    `continue`: say so, and try again at the next."""
    preemption_grace_secs: int = 25
    """Seconds from the signal to stop to the end of the process, saved or
    not. Positive."""
    optimizer: str = "adam"
    """`sgd`, `adam`, `adamw` or the dotted path of a Keras optimizer class."""
    optimizer_options: tuple[str, ...] = ()
    """`key=value` each; arguments of the optimizer's class."""
    learning_rate: float | None = None
    """Learning rate, or the highest one where a schedule changes it; None:
    0.1 for sgd, 0.001 for adam and adamw, Keras's own default for others."""
    learning_rate_schedule: str = "constant"
    """`constant`; `cosine`, falling to 0 at `train_steps`; or
    `piecewise:boundaries=500x800,factor=0.1`, times the factor from each of
    these steps on. All take `warmup_steps=100`."""
    weight_decay: float | None = None
    """Decoupled weight decay; None: the optimizer's own default."""
    gradient_accumulation_steps: int = 1
    """Micro-batches in which each replica works off its share of a global
    batch, one after the other: less memory, the same result."""
    gradient_compression: str = "none"
    """`bfloat16` halves the bytes that replicas send each other, by rounding
    each one's gradients for the exchange; or `none`."""
    global_clipnorm: float | None = None
    """Largest norm of all gradients together; None: no clipping."""
    ema_momentum: float | None = None
    """Momentum of the moving average of the weights, in [0, 1), with which
    the model is evaluated and exported; None: no average."""
    early_stopping: str = ""
    """`accuracy:patience=5` ends the run after 5 evaluations without a better
    accuracy; empty: never."""
    run_eagerly: bool = False
    """Whether to run step by step in Python, for a debugger. Slow."""
    jit_compile: bool | None = None
    """Whether XLA compiles forward and backward pass; None: on GPU and TPU,
    not on CPU."""
    callbacks: tuple[str, ...] = ("progress", "summaries")
    """Names of modules in `training/callbacks`, or dotted paths of modules of
    your own or of classes such as `keras.callbacks.TerminateOnNaN`."""
    export: tuple[str, ...] = ()
    """Forms in which the trained model is written: `keras`, `saved_model`,
    `onnx`; empty: not at all."""
    profile: str = ""
    """`100:110`: the steps that are captured for TensorBoard's profile tab,
    on the chief; `100:110@all`: on every worker. Empty: none."""
    initial_model: str = ""
    """`PATH:freeze=PATTERN`: a `.keras` file, or the folder of a run, whose
    weights a new run starts from; layers whose name fits the pattern are not
    trained. Empty: new weights."""

    def __post_init__(self) -> None:
        _check_range("train_steps", self.train_steps, 1)
        _check_range("steps_per_loop", self.steps_per_loop, 1)
        _check_range("eval_every_steps", self.eval_every_steps, 0)
        _check_range("checkpoint_every_steps", self.checkpoint_every_steps, 0)
        _check_range("checkpoints_to_keep", self.checkpoints_to_keep, 1)
        _check_range("preemption_grace_secs", self.preemption_grace_secs, 1)
        _check_choice(
            "checkpoint_errors", self.checkpoint_errors, CHECKPOINT_ERRORS
        )
        for name in ("learning_rate", "weight_decay"):
            if getattr(self, name) is not None:
                _check_range(name, getattr(self, name), 0)
        accumulation = self.gradient_accumulation_steps
        _check_range("gradient_accumulation_steps", accumulation, 1)
        _check_choice(
            "gradient_compression",
            self.gradient_compression,
            GRADIENT_COMPRESSIONS,
        )
        if self.global_clipnorm is not None and not self.global_clipnorm > 0:
            raise RequestError(
                f"--global_clipnorm={self.global_clipnorm}: must be above 0."
            )
        if self.ema_momentum is not None and not 0 <= self.ema_momentum < 1:
            raise RequestError(
                f"--ema_momentum={self.ema_momentum}: must be in [0, 1)."
            )
        if self.early_stopping and not self.eval_every_steps:
            raise RequestError(
                f"--early_stopping={self.early_stopping}: needs "
                "--eval_every_steps above 0, the evaluations it watches."
            )
        for form in self.export:
            _check_choice("export", form, EXPORTS)
        window = re.fullmatch(PROFILE, self.profile)
        if self.profile and not (window and int(window[1]) < int(window[2])):
            raise RequestError(
                f"--profile={self.profile}: must be START:STOP, two rising "
                "numbers of steps, as in 100:110, perhaps followed by @all."
            )
        if "." not in self.optimizer:
            _check_choice(
                "optimizer",
                self.optimizer,
                OPTIMIZERS,
                " or the dotted path of a Keras optimizer class",
            )
        _check_choice(
            "learning_rate_schedule",
            self.learning_rate_schedule.partition(":")[0],
            SCHEDULES,
        )


def _check_checkpoint(config: RunConfig) -> None:
    word, received = config.checkpoint, f"--checkpoint={config.checkpoint}"
    if not re.fullmatch(CHECKPOINT, word):
        raise RequestError(
            f"{received}: must be newest, best, a step, or the path of a "
            "checkpoint, such as runs/a/checkpoints/step-500."
        )
    if config.mode != "evaluate" and word != "newest":
        raise RequestError(
            f"{received}: goes with --mode=evaluate; --mode={config.mode} "
            "always takes the newest, so leave it out."
        )
    if "/" in word and config.model_dir:
        raise RequestError(
            f"{received}: says in which folder it is; leave out --model_dir."
        )


def _check_choice(
    flag: str, value: str, allowed: tuple[str, ...], other: str = ""
) -> None:
    if value not in allowed:
        words = ", ".join(word or "empty" for word in allowed)
        raise RequestError(f"--{flag}={value}: must be one of {words}{other}.")


def _check_range(flag: str, value: float, least: float) -> None:
    # Written so that NaN fails too.
    if not least <= value < math.inf:
        raise RequestError(f"--{flag}={value}: must be {least} or more.")
