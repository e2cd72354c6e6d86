"""Wrong requests for a TPU, from the words of the command line on."""

import socket
import urllib.request
from typing import Any

import pytest
from absl.testing import flagsaver

from errors import RequestError
from flags import command_line
from strategies.cluster import preflight
from strategies.cluster import tpu_name
from strategies.placement import wheels

LOCAL = "--strategy=tpu --tpu=local"
REMOTE = "--strategy=tpu --tpu=grpc://10.0.0.2:8470"
BUCKET = "--model_dir=gs://bucket/run"
REHEARSE = "--mode=rehearse --model_dir=runs/x --strategy=tpu"
V5E = f"{REHEARSE} --tpu_topology=v5e:2x4"

# What is wrong → the flags that are.
WRONG = {
    "shape on GPUs": "--strategy=mirrored --computation_shape=2,1,1,1",
    "partition on one device": "--partition_dimensions=1,2,2,1",
    "SPMD on GPUs": "--strategy=mirrored --spmd_partitioning",
    "no SPMD on GPUs": "--strategy=mirrored --nospmd_partitioning",
    "topology of GPUs": "--strategy=mirrored --tpu_topology=v5e:2x2",
    "TPU for one device": "--tpu=local",
    "devices of a TPU": f"{LOCAL} --devices=cpu:0",
    "three axes": f"{LOCAL} --computation_shape=2,1,1",
    "five axes": f"{LOCAL} --computation_shape=2,1,1,1,1",
    "two axes of a known TPU": f"{V5E} --computation_shape=2,1",
    "no cores": f"{LOCAL} --computation_shape=0,1,1,1",
    "negative cores": f"{LOCAL} --computation_shape=2,1,1,-1",
    "no parts": f"{LOCAL} --partition_dimensions=1,0,1,1",
    "negative parts": f"{LOCAL} --partition_dimensions=1,-2,-2,1",
    "parts of one core": f"{LOCAL} --partition_dimensions=1,2,2,1",
    "fewer parts than cores": (
        f"{LOCAL} --computation_shape=2,2,1,1 --partition_dimensions=1,2,1,1"
    ),
    "more parts than cores": (
        f"{LOCAL} --computation_shape=1,1,1,2 --partition_dimensions=1,2,2,1"
    ),
    "parts without SPMD": (
        f"{LOCAL} --computation_shape=1,1,1,2 --partition_dimensions=1,2 "
        "--nospmd_partitioning"
    ),
    "SPMD of one core": f"{LOCAL} --spmd_partitioning",
    "topology of a real TPU": f"{LOCAL} --tpu_topology=v5e:2x2",
    "rehearsal of what": REHEARSE,
    "no chips": f"{REHEARSE} --tpu_topology=v5e",
    "one axis": f"{REHEARSE} --tpu_topology=v5e:8",
    "four axes": f"{REHEARSE} --tpu_topology=v4:2x2x2x2",
    "unknown generation": f"{REHEARSE} --tpu_topology=v9:2x2",
    "zero chips": f"{REHEARSE} --tpu_topology=v5e:0x4",
    "three axes of a plane": f"{REHEARSE} --tpu_topology=v5e:2x2x2",
    "larger than any": f"{REHEARSE} --tpu_topology=v5e:32x32",
    "rehearsal without SPMD": (
        f"{V5E} --computation_shape=2,1,1,1 --nospmd_partitioning"
    ),
    "half a host": f"{REHEARSE} --tpu_topology=v5e:2x3",
    "topology twice": f"{REHEARSE} --tpu_topology=v5e:2x2,v5e:2x2",
    "idle cores": f"{V5E} --computation_shape=1,3,1,1",
    "wider than the TPU": f"{V5E} --computation_shape=4,1,1,1",
    "two cores of a chip with one": f"{V5E} --computation_shape=1,1,1,2",
    "too small a second TPU": (
        f"{V5E},v5e:2x2 --computation_shape=1,4,1,1 --global_batch_size=2"
    ),
    "uneven batch": f"{V5E} --global_batch_size=60",
    "batch below the replicas": f"{V5E} --global_batch_size=4",
    "batch for the second TPU": (
        f"{V5E},v5e:16x16 --global_batch_size=64 --computation_shape=1,2,1,1"
    ),
    "uneven micro-batches": f"{V5E} --gradient_accumulation_steps=3",
    "uneven parts of the batch": (
        f"{V5E} --computation_shape=2,1,1,1 --partition_dimensions=2,1,1,1 "
        "--global_batch_size=12"
    ),
    "local folder": f"{REMOTE} --model_dir=runs/x",
    "no folder": REMOTE,
    "local folder with scheme": f"{REMOTE} --model_dir=file:///runs/x",
    "local folder for a name": "--strategy=tpu --tpu=big --model_dir=/runs/x",
    "local data": f"{REMOTE} {BUCKET} --data_dir=/data",
    "local data of tfds": f"{REMOTE} {BUCKET} --dataset=tfds:mnist",
    "threads": f"{REMOTE} {BUCKET} --intra_op_threads=2",
    "more threads": f"{REMOTE} {BUCKET} --inter_op_threads=2",
}


@pytest.fixture(autouse=True)
def _no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every question to a network, and all that comes after, fail."""

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("went too far")

    for variable in tpu_name._VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(socket, "create_connection", fail)
    monkeypatch.setattr(urllib.request, "urlopen", fail)
    monkeypatch.setattr(wheels, "check", fail)
    monkeypatch.setattr(tpu_name, "find", fail)


def _check(words: str) -> None:
    """Does what `train.py` does before it imports TensorFlow."""
    with flagsaver.flagsaver():
        argv = command_line.parse(["train.py", *words.split()])
        configs = command_line.read(argv)
    command_line.check(configs)
    preflight.check(configs.strategy, {})


def _message(words: str) -> str:
    with pytest.raises(RequestError) as info:
        _check(words)
    return str(info.value)


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_refuses_in_one_line(words: str) -> None:
    message = _message(words)
    assert len(message.splitlines()) == 1
    assert len(message) < 300
    assert message.startswith("--")
    assert message.endswith(".")


def test_every_refusal_is_its_own() -> None:
    messages = {name: _message(words) for name, words in WRONG.items()}
    assert len(set(messages.values())) == len(messages)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("topology of a real TPU", "=v5e:2x2: is for --mode=rehearse, not "),
        ("rehearsal of what", "needs --tpu_topology"),
        ("uneven batch", "=60: 8 replicas on v5e:2x4 cannot share it"),
        ("batch below the replicas", "=4: 8 replicas .* a multiple of 8"),
        ("batch for the second TPU", "=64: 128 replicas on v5e:16x16"),
        ("uneven micro-batches", "=3: does not divide the 8 examples of each"),
        ("uneven parts of the batch", "2 parts .* the 3 examples that"),
        ("local folder", "--model_dir=runs/x: .* --tpu=grpc://10.0.0.2:8470 c"),
        ("no folder", "--model_dir is empty, hence a folder of this machine"),
        ("local folder for a name", "--model_dir=/runs/x: .* TPU of --tpu=big"),
        ("local data", "--data_dir=/data: is a folder of this machine"),
        ("local data of tfds", "--data_dir is empty"),
        ("threads", "--intra_op_threads=2: are threads of this machine"),
    ],
)
def test_names_flag_and_numbers(name: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        _check(WRONG[name])


@pytest.mark.parametrize(
    "words",
    [
        V5E,
        # Written here, by a rehearsal of what will run elsewhere.
        f"{V5E} --tpu=grpc://10.0.0.2:8470",
        f"{V5E},v5e:4x4 --computation_shape=2,2,1,1 --tpu=local "
        "--partition_dimensions=1,2,2,1 --spmd_partitioning",
        f"{V5E} --computation_shape=2,1,1,1 --partition_dimensions=2,1,1,1",
        f"{V5E} --gradient_accumulation_steps=4",
    ],
)
def test_takes_a_rehearsal(words: str) -> None:
    _check(words)


@pytest.mark.parametrize(
    "words",
    [
        f"{LOCAL} --data_dir=/data --model_dir=/runs/x --intra_op_threads=2",
        f"{REMOTE} {BUCKET} --dataset=tfds:mnist --data_dir=gs://bucket/data",
        f"{REMOTE} {BUCKET} --computation_shape=2,1,1,1",
    ],
)
def test_takes_a_job_as_far_as_the_flags_tell(words: str) -> None:
    with pytest.raises(AssertionError, match="went too far"):
        _check(words)


def test_the_environment_names_a_remote_tpu_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TPU_NAME", "big")
    message = "--model_dir is empty, .* remote TPU of TPU_NAME=big cannot"
    with pytest.raises(RequestError, match=message):
        _check("--strategy=tpu")


def test_refuses_letters(capsys: pytest.CaptureFixture[str]) -> None:
    for words, value in (
        (["--computation_shape=2,x"], "2,x"),
        (["--partition_dimensions=1,,2"], "1,,2"),
    ):
        with pytest.raises(SystemExit), flagsaver.flagsaver():
            command_line.parse(["train.py", *words])
        error = capsys.readouterr().err
        assert f"={value}: must be integers with commas" in error


def test_reads_integers() -> None:
    with flagsaver.as_parsed(
        strategy="tpu", computation_shape="2,1,1,1", partition_dimensions=""
    ):
        strategy = command_line.read(["train.py"]).strategy
    assert strategy.computation_shape == (2, 1, 1, 1)
    assert strategy.partition_dimensions == ()
