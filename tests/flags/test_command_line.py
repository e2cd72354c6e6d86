import dataclasses
import re
import subprocess
import sys

import pytest
from absl import flags
from absl.testing import flagsaver

from errors import RequestError
from flags import command_line
from tests import processes

GROUPS = {
    "flags.run": "run",
    "flags.strategy": "strategy",
    "flags.data": "data",
    "flags.model": "model",
    "flags.training": "train",
}


@pytest.mark.parametrize("module", GROUPS)
def test_flags_match_fields_and_defaults(module: str) -> None:
    config = getattr(command_line.Configs(), GROUPS[module])
    defined = {
        flag.name: flag
        for flag in flags.FLAGS.flags_by_module_dict().get(module, [])
    }
    fields = dataclasses.asdict(config)
    assert defined.keys() == fields.keys()
    for name, flag in defined.items():
        default = flag.default
        assert (tuple(default) if isinstance(default, list) else default) == (
            fields[name]
        ), name
        assert flag.help.endswith("."), name


def test_number_of_flags_stays_within_budget() -> None:
    by_module = flags.FLAGS.flags_by_module_dict()
    assert sum(len(by_module[module]) for module in GROUPS) <= 56


def test_defaults_are_the_default_configs() -> None:
    with flagsaver.as_parsed():
        assert command_line.read(["train.py"]) == command_line.Configs()


def test_reads_what_was_given() -> None:
    with flagsaver.as_parsed(
        seed="7", devices="cpu:0,cpu:1", model_options="width=3", mode="train"
    ):
        configs = command_line.read(["train.py"])
    assert configs.run.seed == 7
    assert configs.strategy.devices == ("cpu:0", "cpu:1")
    assert configs.model.model_options == ("width=3",)


def test_refuses_leftover_arguments() -> None:
    with (
        flagsaver.as_parsed(),
        pytest.raises(RequestError, match=r"'cnn'.*--name=value"),
    ):
        command_line.read(["train.py", "cnn"])


@pytest.mark.parametrize("word", ["--help", "-h", "--helpfull"])
def test_help_has_a_section_for_each_group(word: str, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        command_line.parse(["train.py", word])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for module in GROUPS:
        assert sys.modules[module].__doc__ in text
    for name in dataclasses.asdict(command_line.Configs().train):
        assert name in text


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--seed=x", "--seed=x: must be an integer"),
        ("--learning_rate=fast", "--learning_rate=fast: must be a number"),
        ("--deterministic=maybe", "must be true or false"),
        ("--trainsteps=1", "--trainsteps.*did you mean --train_steps"),
        ("--no_such_flag=1", "--no_such_flag.*no such flag"),
        ("--seed", "--seed"),
        ("--flagfile=/no/such/file", "flagfile"),
    ],
)
def test_a_bad_flag_ends_with_two(word: str, message: str, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        command_line.parse(["train.py", word])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert re.search(message, error)


def test_float64_gradients_are_not_rounded() -> None:
    configs = command_line.Configs(
        model=command_line.ModelConfig(dtype_policy="float64"),
        train=command_line.TrainConfig(gradient_compression="bfloat16"),
    )
    with pytest.raises(RequestError, match="--gradient_compression=bfloat16"):
        command_line.check(configs)


def test_a_path_of_a_checkpoint_stands_for_the_folder() -> None:
    path = "runs/a/best/step-5"
    config = command_line.RunConfig(mode="evaluate", checkpoint=path)
    strategy = command_line.StrategyConfig(strategy="multi_worker_mirrored")
    command_line.check(command_line.Configs(run=config, strategy=strategy))
    with pytest.raises(RequestError, match="leave out --model_dir"):
        command_line.RunConfig(
            mode="evaluate", checkpoint=path, model_dir="runs/a"
        )
    with pytest.raises(RequestError, match="follow needs --model_dir"):
        command_line.RunConfig(mode="follow")


def test_several_workers_need_a_folder() -> None:
    strategy = command_line.StrategyConfig(strategy="multi_worker_mirrored")
    configs = command_line.Configs(strategy=strategy)
    with pytest.raises(RequestError, match="--model_dir"):
        command_line.check(configs)


def test_scaling_writes_to_no_folder_but_knows_no_tpu() -> None:
    run = command_line.RunConfig(mode="scaling")
    several = command_line.StrategyConfig(strategy="multi_worker_mirrored")
    command_line.check(command_line.Configs(run=run, strategy=several))
    tpu = command_line.StrategyConfig(strategy="tpu")
    with pytest.raises(RequestError, match="not --strategy=tpu; use --mode=re"):
        command_line.check(command_line.Configs(run=run, strategy=tpu))


@pytest.mark.parametrize("mode", ["evaluate", "follow"])
def test_only_a_training_exports(mode: str) -> None:
    run = command_line.RunConfig(mode=mode, model_dir="runs/a")
    train = command_line.TrainConfig(export=("keras", "onnx"))
    configs = command_line.Configs(run=run, train=train)
    with pytest.raises(RequestError, match=rf"--export=keras,onnx: .*{mode}"):
        command_line.check(configs)


def test_the_evaluator_of_a_training_that_exports_exports_nothing() -> None:
    run = command_line.RunConfig(model_dir="runs/a")
    train = command_line.TrainConfig(export=("keras",))
    configs = command_line.Configs(run=run, train=train)
    command_line.check(configs)
    evaluator = command_line.as_evaluator(configs)
    command_line.check(evaluator)
    assert evaluator.train == command_line.TrainConfig()


def test_words_give_the_configs_they_were_made_of() -> None:
    configs = command_line.Configs(
        command_line.RunConfig(seed=3, deterministic=True),
        command_line.StrategyConfig(devices=("cpu:0", "cpu:1")),
        command_line.DataConfig(dataset="synthetic:shape=2x2,classes=3"),
        command_line.ModelConfig(model_options=("a=1,2", 'b="', "c=d e")),
        command_line.TrainConfig(
            learning_rate=1e-7, jit_compile=False, callbacks=()
        ),
    )
    words = command_line.as_words(configs)
    assert "--seed=3" in words
    assert len(words) == 8
    with flagsaver.flagsaver():
        flags.FLAGS(["train.py", *words])
        assert command_line.read(["train.py"]) == configs
    assert command_line.as_words(command_line.Configs()) == []


def test_reads_a_flagfile(tmp_path) -> None:
    file = tmp_path / "flags.txt"
    file.write_text("--seed=5\n# a comment\n--strategy=mirrored\n")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from flags import command_line as c; import sys;"
            "print(c.read(c.parse(sys.argv)).run.seed)",
            f"--flagfile={file}",
        ],
        cwd=processes.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "5\n"


def test_help_imports_no_tensorflow() -> None:
    code = (
        "import sys, runpy; sys.argv = ['train.py', '--help']\n"
        "try: runpy.run_path('train.py', run_name='__main__')\n"
        "except SystemExit as stop: code = stop.code\n"
        "print('code', code, 'tensorflow' in sys.modules,"
        " 'keras' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=processes.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "code 0 False False"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--strategy=mirrord", "--strategy=mirrord: must be one of.*mirrored"),
        ("--model=resnet", "--model=resnet: must be one of"),
        ("--dataset=mnist", "--dataset=mnist: must be one of"),
        ("--augmentation=flip", "--augmentation=flip: must be one of flip_and"),
        ("--class_weights=0:x", "--class_weights=0:x: must be balanced"),
        ("--train_steps=0", "--train_steps=0: must be"),
        ("--steps_per_loop=-1", "--steps_per_loop=-1: must be"),
        ("--learning_rate=nan", "--learning_rate=nan: must be"),
        ("--global_batch_size=0", "--global_batch_size=0: must be"),
        ("--devices=tpu7", "--devices=tpu7: 'tpu7'"),
        ("--devices=cpu:0,cpu:0", "named twice"),
        ("--devices=cpu:0,gpu:0", "mixed"),
        ("--intra_op_threads=-1", "--intra_op_threads=-1: must be"),
        ("--mode=test", "--mode=test: must be one of train, evaluate"),
        ("--mode=evaluate", "--model_dir"),
        ("--optimizer=adamm", "--optimizer=adamm: must be one of"),
        ("--learning_rate_schedule=step", "must be one of constant, cosine"),
        ("--dtype_policy=int8", "--dtype_policy=int8: must be one of"),
        ("--shard_by=hosts", "--shard_by=hosts: must be"),
        ("--gradient_compression=int8", "=int8: must be one of none, bfloat16"),
        ("--export=keras,tflite", "--export=tflite: must be one of keras,"),
        (
            "--checkpoint=last",
            "--checkpoint=last: must be newest, best, a step",
        ),
        ("--checkpoint=best", "--checkpoint=best: goes with --mode=evaluate"),
        ("--checkpoint_errors=no", "must be one of stop, continue"),
        ("--callbacks=progresss_", "--callbacks=progresss_.*mean progress"),
        ("--weight_decay=-1", "--weight_decay=-1"),
        ("--strategy=multi_worker_mirrored", "--model_dir"),
        ("--scaling_secs=0", "--scaling_secs=0: must be 1"),
    ],
)
def test_a_bad_value_is_refused_before_tensorflow(word, message) -> None:
    name, value = word.removeprefix("--").split("=", 1)
    with (
        flagsaver.as_parsed(**{name: value}),
        pytest.raises(RequestError, match=message),
    ):
        command_line.check(command_line.read(["train.py"]))
