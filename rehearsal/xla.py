"""The private parts of jax 0.10 that a rehearsal needs, and no others.

jaxlib's clients compile a StableHLO module with replicas and partitions, which
jax's public functions do not offer. `tests/rehearsal/test_xla.py` names the
versions that this file was written for.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax.experimental import topologies
from jaxlib.mlir import ir

from rehearsal import tiling

# The program of one core, whichever client it is for.
Executable = Any


def compile_for_cpu(
    module: str, num_replicas: int, num_partitions: int
) -> Executable:
    """Compiles for devices that this process has; see `child`.

    Args:
        module: StableHLO that `stablehlo.accepted` has seen.
        num_replicas: Replicas.
        num_partitions: Devices of each.

    Raises:
        jax.errors.JaxRuntimeError: if XLA does not take it.
    """
    jax.config.update("jax_enable_x64", True)
    devices = jax.devices()[: num_replicas * num_partitions]
    assignment = np.arange(len(devices)).reshape(num_replicas, num_partitions)
    return devices[0].client.compile_and_load(
        _parse(module),
        xla_client.DeviceList(tuple(devices)),
        _options(assignment),
    )


def compile_for_tpu(module: str, topology: str, shape: list[int]) -> Executable:
    """Compiles for a TPU that need not be there.

    Args:
        module: StableHLO that `stablehlo.accepted` has seen.
        topology: Such as `v5e:2x2`.
        shape: Number of replicas and of partitions.

    Raises:
        ValueError: if the topology has another number of cores.
        jax.errors.JaxRuntimeError: if there is no such topology, the compiler
            does not take the module, or it does not fit.
    """
    devices: Any = topologies.get_topology_desc(topology, "tpu").devices
    if len(devices) != shape[0] * shape[1]:
        raise ValueError(
            f"{topology} has {len(devices)} cores, but {shape[0]} replicas on "
            f"{shape[1]} cores each were asked for."
        )
    ids = np.array([device.id for device in devices])
    return devices[0].client.compile(
        _parse(module),
        xla_client.DeviceList(tuple(devices)),
        _options(ids.reshape(shape)),
    )


def _parse(module: str) -> ir.Module:
    with mlir.make_ir_context():
        return ir.Module.parse(module)


def _options(assignment: np.ndarray) -> xla_client.CompileOptions:
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    for each in (options, build):
        each.num_replicas, each.num_partitions = assignment.shape
        each.device_assignment = xla_client.DeviceAssignment.create(assignment)
    build.use_spmd_partitioning = True
    # TensorFlow's annotations are those of the older partitioner.
    build.use_shardy_partitioner = False
    return options


def text(executable: Executable) -> str:
    """Returns the optimized program."""
    return executable.hlo_modules()[0].to_string()


def memory(executable: Executable) -> dict[str, int]:
    """Returns the bytes of one core that each use takes, and their `total`."""
    stats = executable.get_compiled_memory_stats()
    parts = {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "aliased": stats.alias_size_in_bytes,
        "temporary": stats.temp_size_in_bytes,
        "generated_code": stats.generated_code_size_in_bytes,
    }
    # What is aliased is counted among the arguments and the outputs.
    return {**parts, "total": sum(parts.values()) - 2 * parts["aliased"]}


def cost(executable: Executable) -> dict[str, float]:
    """Returns `flops` and `bytes_accessed` of one core, a loop counted once."""
    found = executable.cost_analysis()
    return {
        "flops": float(found.get("flops", 0)),
        "bytes_accessed": float(found.get("bytes accessed", 0)),
    }


def count_flops(module: str) -> float:
    """Returns the FLOPs of a program before it is cut, a loop counted once.

    Args:
        module: StableHLO that `stablehlo.accepted` has seen.
    """
    computation = xla_client._xla.mlir.mlir_module_to_xla_computation(
        str(_parse(module))
    )
    found = xla_client._xla.hlo_module_cost_analysis(
        jax.devices()[0].client, computation.get_hlo_module()
    )
    return float(found.get("flops", 0))


def run(
    executable: Executable,
    arguments: Sequence[np.ndarray],
    num_replicas: int,
    num_partitions: int,
) -> list[np.ndarray]:
    """Runs the program once on all devices.

    Args:
        executable: From `compile_for_cpu`.
        arguments: `[num_replicas, …]` each, whole; they are split as the
            executable's parameters are.
        num_replicas: As it was compiled for.
        num_partitions: Likewise.

    Returns:
        The results, `[num_replicas, …]` each, whole.

    Raises:
        ValueError: if an argument does not split into equal parts.
    """
    devices = executable.local_devices()
    buffers = [
        _put(list(tiling.split(array, layout, num_partitions)), devices)
        for array, (layout, _) in zip(
            arguments,
            _layouts(executable.get_parameter_shardings(), arguments),
            strict=True,
        )
    ]
    results = executable.execute_sharded(buffers)
    parts = [
        list(map(np.asarray, each))
        for each in results.disassemble_into_single_device_arrays()
    ]
    layouts = _layouts(
        executable.get_output_shardings(), [each[:1] for each in parts]
    )
    return [
        tiling.join(each, layout, num_replicas, holder)
        for each, (layout, holder) in zip(parts, layouts, strict=True)
    ]


def _layouts(
    protos: Sequence[Any] | None, arrays: Sequence[Any]
) -> list[tuple[tiling.Layout, int]]:
    """Returns the layout of each array, and who holds one that has none.

    Args:
        protos: Shardings; None where a replica has one device.
        arrays: As many, with an axis in front of their own.
    """
    if protos is None:
        return [(None, 0)] * len(arrays)
    found: list[tuple[tiling.Layout, int]] = []
    for proto, array in zip(protos, arrays, strict=True):
        sharding = xla_client.HloSharding.from_proto(proto)
        devices = sharding.tile_assignment_devices()
        if not sharding.is_tiled():
            # Only what is assigned to one device names devices here.
            found.append((None, next(iter(devices), 0)))
            continue
        sizes = list(sharding.tile_assignment_dimensions())
        tiles = np.reshape(devices, sizes)
        ndim = np.ndim(array) - 1
        found.append((tiles.reshape(*sizes[:ndim], -1), 0))
    return found


def _put(parts: list[np.ndarray], devices: Sequence[jax.Device]) -> jax.Array:
    """Returns one array whose buffers are the parts, one a device.

    It says of itself that every device has the same, and so has the shape of
    one part; only its buffers are looked at.
    """
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.make_array_from_single_device_arrays(
        parts[0].shape,
        everywhere,
        [
            # The program writes its new state over the old one: no device
            # may share NumPy's memory.
            jax.device_put(part, device, may_alias=False)
            for part, device in zip(parts, devices, strict=True)
        ],
    )
