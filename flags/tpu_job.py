"""What a job on a TPU asks of the flags of several groups together."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from errors import RequestError
from strategies.cluster import tpu_name
from strategies.placement import check as placement_check
from strategies.placement import topology

if TYPE_CHECKING:
    from flags.command_line import Configs


def check(configs: "Configs", environ: Mapping[str, str]) -> None:
    """Refuses what a TPU cannot do, before it is asked for anything.

    Args:
        configs: All flags.
        environ: Environment variables, one of which may name the TPU.

    Raises:
        RequestError: naming the flags that disagree.
    """
    strategy = configs.strategy
    rehearses = configs.run.mode == "rehearse"
    if strategy.tpu_topology and not rehearses:
        raise RequestError(
            f"--tpu_topology={','.join(strategy.tpu_topology)}: is for "
            f"--mode=rehearse, not for --mode={configs.run.mode}; a real TPU "
            "says itself what it is."
        )
    if strategy.strategy != "tpu":
        return
    if rehearses and not strategy.tpu_topology:
        raise RequestError(
            "--mode=rehearse with --strategy=tpu needs --tpu_topology, the "
            "TPU to rehearse for, such as v5e:2x4."
        )
    placement_check.check(strategy)
    devices = topology.num_logical_devices(strategy.computation_shape)
    if rehearses and devices > 1 and strategy.spmd_partitioning is False:
        raise RequestError(
            f"--nospmd_partitioning: without one program for the {devices} "
            "cores of a replica nothing can be rehearsed; drop the flag."
        )
    for name in strategy.tpu_topology:
        _check_idle(strategy.computation_shape, name)
        _check_batch(configs, name)
    if tpu_name.is_remote(strategy, environ):
        _, source = tpu_name.name_of(strategy.tpu, environ)
        _check_remote(configs, source, rehearses)


def _check_idle(shape: tuple[int, ...], name: str) -> None:
    """Checks that every core has work, as the compiler wants it."""
    tpu = topology.parse(name)
    replicas = topology.count_replicas(tpu.mesh_shape, shape)
    idle = tpu.num_cores - replicas * topology.num_logical_devices(shape)
    if idle:
        raise RequestError(
            f"--computation_shape={','.join(map(str, shape))}: leaves {idle} "
            f"of the {tpu.num_cores} cores of {name} without work, which "
            "cannot be rehearsed; choose a shape that divides its mesh, "
            f"{'x'.join(map(str, tpu.mesh_shape))}."
        )


def _check_batch(configs: "Configs", name: str) -> None:
    """Checks that replicas, micro-batches and parts divide the batch."""
    mesh_shape = topology.parse(name).mesh_shape
    replicas = topology.count_replicas(
        mesh_shape, configs.strategy.computation_shape
    )
    batch = configs.data.global_batch_size
    words = f"--global_batch_size={batch}"
    if batch % replicas:
        raise RequestError(
            f"{words}: {replicas} replicas on {name} cannot share it equally; "
            f"use a multiple of {replicas}."
        )
    count = configs.train.gradient_accumulation_steps
    parts = (*configs.strategy.partition_dimensions, 1)[0]
    rows = batch // replicas
    if rows % count:
        # `training.step` says so too, once it knows the strategy.
        raise RequestError(
            f"--gradient_accumulation_steps={count}: does not divide the "
            f"{rows} examples of each of {replicas} replicas on {name}; choose "
            "a divisor, or another --global_batch_size."
        )
    if rows // count % parts:
        raise RequestError(
            f"{words}: {parts} parts of --partition_dimensions do not divide "
            f"the {rows // count} examples that a replica on {name} takes at "
            "a time; choose a multiple, or leave the batch whole."
        )


def _check_remote(configs: "Configs", source: str, rehearses: bool) -> None:
    """Checks what another machine, the host of a remote TPU, is asked for."""
    advice = "use a bucket, gs://…, or run on the TPU VM with --tpu=local"
    # A rehearsal runs here, and writes here.
    folders = {} if rehearses else {"model_dir": configs.run.model_dir}
    # tensorflow-datasets has a default of its own, in the home folder.
    if configs.data.data_dir or configs.data.dataset.startswith("tfds:"):
        folders["data_dir"] = configs.data.data_dir
    for flag, folder in folders.items():
        if not folder:
            raise RequestError(
                f"--{flag} is empty, hence a folder of this machine, which the "
                f"remote TPU of {source} cannot reach; {advice}."
            )
        if "://" not in folder or folder.startswith("file://"):
            raise RequestError(
                f"--{flag}={folder}: is a folder of this machine, which the "
                f"remote TPU of {source} cannot reach; {advice}."
            )
    for flag in ("intra_op_threads", "inter_op_threads"):
        if value := getattr(configs.strategy, flag):
            raise RequestError(
                f"--{flag}={value}: are threads of this machine, but the "
                f"operations run on the host of {source}; drop the flag."
            )
