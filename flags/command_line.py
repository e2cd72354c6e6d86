"""The whole command line: parse it, explain it, read it into configs."""

import csv
import dataclasses
import difflib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from absl import flags
from absl import logging

from data import DataConfig
from errors import RequestError
from flags import data as data_flags
from flags import model as model_flags
from flags import run as run_flags
from flags import strategy as strategy_flags
from flags import tpu_job
from flags import training as training_flags
from model import ModelConfig
from strategies import StrategyConfig
from training import RunConfig
from training import TrainConfig

_GROUPS = (
    run_flags,
    strategy_flags,
    data_flags,
    model_flags,
    training_flags,
)
_HELP = {"--help", "-help", "-h", "--helpfull", "--helpshort"}
# absl: "flag --seed=x: invalid literal …"; the reason speaks of Python.
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "ints": "integers with commas between them, such as 1,2,2,1",
    "string": "a word",
}
_ILLEGAL = re.compile(r"flag --(\w+)=(.*?): ", re.DOTALL)


class Configs(NamedTuple):
    """All that a run needs to know."""

    run: RunConfig = RunConfig()
    strategy: StrategyConfig = StrategyConfig()
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()


def parse(argv: Sequence[str]) -> list[str]:
    """Parses `argv`; a `flags_parser` for `absl.app.run`.

    absl's own ends with exit code 1 for `--help` and for a bad flag; here the
    first is 0 and the second 2, as is usual.

    Returns:
        The program name and the arguments that are not flags.
    """
    if _HELP & set(argv[1:]):
        print(help_text())
        sys.exit(0)
    try:
        return flags.FLAGS(list(argv))
    except flags.Error as error:
        print(f"train.py: {_explain(error)}", file=sys.stderr)
        sys.exit(2)


def read(argv: Sequence[str]) -> Configs:
    """Reads the parsed flags.

    Args:
        argv: What `parse` returned.

    Raises:
        RequestError: for a leftover argument or a value that is not allowed.
    """
    if len(argv) > 1:
        raise RequestError(
            f"unexpected argument {argv[1]!r}: everything is set by flags of "
            "the form --name=value; see --help."
        )
    # TensorFlow tells of every checkpoint; --verbosity=0 shows it.
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    return Configs(
        run_flags.run_config(),
        strategy_flags.strategy_config(),
        data_flags.data_config(),
        model_flags.model_config(),
        training_flags.train_config(),
    )


def check(configs: Configs) -> None:
    """Refuses what only the flags of several groups together show.

    Raises:
        RequestError: if several workers would each invent a folder, or each
            evaluate alone; if the scaling of a TPU, or an export without a
            training, is asked for; if float64 gradients are to be rounded; or
            as `tpu_job.check`.
    """
    scales = configs.run.mode == "scaling"
    if scales and configs.strategy.strategy == "tpu":
        raise RequestError(
            "--mode=scaling measures the CPUs and GPUs of this machine, not "
            "--strategy=tpu; use --mode=rehearse for an estimate of a TPU."
        )
    compression = configs.train.gradient_compression
    if compression != "none" and configs.model.dtype_policy == "float64":
        raise RequestError(
            f"--gradient_compression={compression} would round away what "
            "--dtype_policy=float64 is for; drop one of the two."
        )
    tpu_job.check(configs, os.environ)
    several = configs.strategy.strategy == "multi_worker_mirrored"
    if several and configs.run.mode == "follow":
        raise RequestError(
            "--mode=follow evaluates on one worker, not with --strategy="
            "multi_worker_mirrored; use one_device or mirrored."
        )
    if configs.run.mode in ("evaluate", "follow") and configs.train.export:
        raise RequestError(
            f"--export={','.join(configs.train.export)}: goes with a training, "
            f"not with --mode={configs.run.mode}, which writes no model; leave "
            "it out."
        )
    trains = configs.run.mode == "train"
    if several and trains and not configs.run.model_dir:
        raise RequestError(
            "--strategy=multi_worker_mirrored needs --model_dir, the same for "
            "all workers: each process would invent its own."
        )


def as_evaluator(configs: Configs) -> Configs:
    """Returns what the evaluator of a training with these flags is to do."""
    here = StrategyConfig(
        intra_op_threads=configs.strategy.intra_op_threads,
        inter_op_threads=configs.strategy.inter_op_threads,
        worker_timeout_secs=configs.strategy.worker_timeout_secs,
    )
    run = dataclasses.replace(configs.run, mode="follow")
    # The training's chief exports.
    train = dataclasses.replace(configs.train, export=())
    return configs._replace(run=run, strategy=here, train=train)


def as_dict(configs: Configs) -> dict[str, dict[str, Any]]:
    """Returns group → flag → value."""
    return {
        group: dataclasses.asdict(config)
        for group, config in configs._asdict().items()
    }


def as_words(configs: Configs) -> list[str]:
    """Returns the flags, `--name=value`, that `read` makes `configs` of."""
    return [
        f"--{field.name}={_word(getattr(config, field.name))}"
        for config in configs
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != field.default
    ]


def _word(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    # absl reads a list as a line of CSV: commas may stand within quotes.
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(value)
    return line.getvalue()


def help_text() -> str:
    """Returns the help: one section for each module of flags."""
    sections = [
        f"{(group.__doc__ or '').strip()}\n"
        # The first line is the module's name.
        + flags.FLAGS.module_help(group.__name__).strip().partition("\n")[2]
        for group in _GROUPS
    ]
    return "\n\n".join(
        [
            "python train.py --name=value …",
            *sections,
            "Kept in a file, one flag a line: --flagfile=FILE.",
        ]
    )


def _explain(error: flags.Error) -> str:
    """Says what absl says, in the words of the rest."""
    illegal = _ILLEGAL.match(str(error))
    if illegal:
        name, value = illegal.groups()
        kind = _KINDS[flags.FLAGS[name].flag_type()]
        return f"--{name}={value}: must be {kind}; see --help."
    if isinstance(error, flags.UnrecognizedFlagError):
        near = difflib.get_close_matches(error.flagname, flags.FLAGS, n=1)
        hint = f"did you mean --{near[0]}? See" if near else "see"
        return f"--{error.flagname}: there is no such flag; {hint} --help."
    return f"{str(error).removeprefix('ERROR:: ').rstrip('.')}; see --help."
