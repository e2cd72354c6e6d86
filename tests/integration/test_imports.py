"""Importing the template touches nothing that must be set up first."""

from tests import processes

# Any operation, or a listing of logical devices, would start the runtime;
# after that the CPU cannot be split and threads cannot be set.
PROGRAM = """
import importlib
import pathlib
import tensorflow as tf

names = []
for top in ("strategies", "data", "model", "training", "flags"):
    for path in sorted(pathlib.Path(top).rglob("*.py")):
        module = ".".join(path.with_suffix("").parts)
        names.append(module.removesuffix(".__init__"))
for name in [*names, "train", "errors", "options"]:
    importlib.import_module(name)

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 3,
)
tf.config.threading.set_intra_op_parallelism_threads(1)
print(len(names), len(tf.config.list_logical_devices("CPU")))
"""


def test_no_import_starts_the_runtime() -> None:
    done = processes.run(PROGRAM, program="-c")
    assert done.returncode == 0, done.stderr
    modules, devices = map(int, done.stdout.split())
    assert modules > 40
    assert devices == 3


def test_thread_and_device_flags_reach_tensorflow(tmp_path) -> None:
    program = """
import sys
import tensorflow as tf
import train
from flags import command_line
train.run(command_line.read(command_line.parse(["x", *sys.argv[1:]])))
print("threads", tf.config.threading.get_intra_op_parallelism_threads(),
      tf.config.threading.get_inter_op_parallelism_threads(),
      len(tf.config.list_logical_devices("CPU")))
"""
    done = processes.run(
        program,
        "--strategy=mirrored",
        "--devices=cpu:0,cpu:1",
        "--intra_op_threads=1",
        "--inter_op_threads=3",
        "--model=mlp",
        "--train_steps=2",
        f"--model_dir={tmp_path}",
        program="-c",
    )
    assert done.returncode == 0, done.stderr
    assert "1 worker, 2 replicas; here: CPU:0, CPU:1" in done.stdout
    assert "threads 1 3 2" in done.stdout
