import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from strategies.placement import topology


def make_topology(mesh_shape: tuple[int, ...]) -> tf.tpu.experimental.Topology:
    """Makes by hand what a TPU with one host says of itself."""
    cores = itertools.product(*map(range, mesh_shape))
    return tf.tpu.experimental.Topology(
        mesh_shape=list(mesh_shape),
        device_coordinates=np.array([list(cores)], np.int32),
    )


@pytest.mark.parametrize(
    ("name", "mesh_shape"),
    [
        ("v2:2x2", (2, 2, 1, 2)),
        ("v3:2x2", (2, 2, 1, 2)),
        ("v4:2x2x1", (2, 2, 1, 2)),
        ("v4:2x2x4", (2, 2, 4, 2)),
        ("v5e:2x4", (2, 4, 1, 1)),
        ("v5e:16x16", (16, 16, 1, 1)),
        ("v5p:2x2x2", (2, 2, 2, 1)),
        ("v6e:16x16", (16, 16, 1, 1)),
    ],
)
def test_parses(name: str, mesh_shape: tuple[int, ...]) -> None:
    parsed = topology.parse(name)
    assert parsed.mesh_shape == mesh_shape
    assert parsed.num_cores == math.prod(mesh_shape)
    assert parsed.cores_per_chip == mesh_shape[3]
    assert f"{parsed.generation}:" in parsed.name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "--tpu_topology=: is not a generation"),
        ("v5e", "is not a generation and chips"),
        ("v5e:8", "is not a generation and chips"),
        ("v5e:2x2x2x2", "is not a generation and chips"),
        ("v5e:2x-2", "is not a generation and chips"),
        ("v5e:2x2\n", "is not a generation and chips"),
        ("v5e:2x99999", "is not a generation and chips"),
        ("v9:2x2", "there is no v9; the generations are v2, v3, v4, v5e"),
        ("v5e:0x2", "0 chips along x are not a multiple of 2"),
        ("v5e:2x3", "3 chips along y are not a multiple of 2"),
        ("v4:2x2x0", "0 chips along z are not a multiple of 1"),
    ],
)
def test_refuses_names(name: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        topology.parse(name)


@pytest.mark.parametrize(
    ("mesh_shape", "shape", "replicas"),
    [
        ((2, 4, 1, 1), (), 8),
        ((2, 4, 1, 1), (1, 1, 1, 1), 8),
        ((2, 4, 1, 1), (2, 1, 1, 1), 4),
        ((2, 4, 1, 1), (2, 4, 1, 1), 1),
        ((2, 2, 1, 2), (1, 1, 1, 2), 4),
        ((2, 2, 1, 2), (2, 2, 1, 2), 1),
        ((2, 2, 2, 1), (1, 1, 2, 1), 4),
        # Does not divide: the rest is left over.
        ((2, 4, 1, 1), (1, 3, 1, 1), 2),
        ((6, 4, 1, 1), (4, 2, 1, 1), 2),
    ],
)
def test_counts_as_tensorflow_places(
    mesh_shape: tuple[int, ...], shape: tuple[int, ...], replicas: int
) -> None:
    assert topology.count_replicas(mesh_shape, shape) == replicas

    def build(count: int) -> tf.tpu.experimental.DeviceAssignment:
        return tf.tpu.experimental.DeviceAssignment.build(
            make_topology(mesh_shape),
            computation_shape=list(shape) or None,
            num_replicas=count,
        )

    assignment = build(replicas)
    assert assignment.num_replicas == replicas
    devices = topology.num_logical_devices(shape)
    assert assignment.num_cores_per_replica == devices
    cores = assignment.core_assignment.reshape(-1, 4)
    assert len(np.unique(cores, axis=0)) == replicas * devices
    with pytest.raises(ValueError, match="fit in a TPU mesh"):
        build(replicas + 1)


@pytest.mark.parametrize(
    ("mesh_shape", "shape", "message"),
    [
        ((2, 4, 1, 1), (3, 1, 1, 1), "=3,1,1,1: needs 3 along axis 0.*has 2"),
        ((2, 4, 1, 1), (1, 1, 1, 2), "needs 2 along axis 3, .* 2x4x1x1, has 1"),
    ],
)
def test_refuses_what_tensorflow_does(
    mesh_shape: tuple[int, ...], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        topology.count_replicas(mesh_shape, shape)
    with pytest.raises(ValueError, match="does not fit in TPU topology"):
        tf.tpu.experimental.DeviceAssignment.build(
            make_topology(mesh_shape), list(shape), num_replicas=1
        )
