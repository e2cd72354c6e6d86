"""The variables as `srun` of Slurm 22.05 and later sets them."""

from typing import Any

import pytest

from errors import RequestError
from strategies.cluster import slurm

# srun -N2 -n2: no more tasks than nodes, so it says cyclic by itself.
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_DISTRIBUTION": "cyclic",
}
# The script of `sbatch -N2 -n2`: one process, though it has a SLURM_PROCID.
BATCH = {
    "SLURM_JOB_ID": "7",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_TASKS_PER_NODE": "1(x2)",
}
# The shell of `salloc -n2` where it is a step of its own.
INTERACTIVE = {
    **BATCH,
    "SLURM_STEP_ID": "4294967290",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}
PORT = 10240 + 32 * (31 * 7 % 640)


def _six(distribution: str, index: int, **changes: Any) -> dict[str, str]:
    """Six tasks on three nodes: 3, 2 and 1."""
    environ = {
        **STEP,
        "SLURM_PROCID": str(index),
        "SLURM_STEP_NUM_TASKS": "6",
        "SLURM_STEP_NODELIST": "n[1-3]",
        "SLURM_STEP_TASKS_PER_NODE": "3,2,1",
        "SLURM_DISTRIBUTION": distribution,
        **changes,
    }
    for name in ("SLURM_NODEID", "SLURM_LOCALID"):
        if name not in changes:
            del environ[name]
    return environ


def test_one_task_a_node() -> None:
    cluster = slurm.read(STEP)
    assert cluster.workers == (f"n1:{PORT}", f"n2:{PORT}")
    assert (cluster.task_type, cluster.index) == ("worker", 1)
    assert not cluster.has_chief


def test_fewest_variables_are_enough() -> None:
    """The older names, and nothing that could be checked."""
    cluster = slurm.read(
        {
            "SLURM_JOBID": "7",
            "SLURM_STEPID": "0",
            "SLURM_PROCID": "0",
            "SLURM_NTASKS": "2",
            "SLURM_STEP_NODELIST": "n[1-2]",
            "SLURM_TASKS_PER_NODE": "1(x2)",
        }
    )
    assert cluster.workers == (f"n1:{PORT}", f"n2:{PORT}")


def test_step_may_be_smaller_than_job() -> None:
    environ = {
        **STEP,
        "SLURM_NTASKS": "8",
        "SLURM_TASKS_PER_NODE": "4(x2)",
        "SLURM_JOB_NODELIST": "n[1-2]",
    }
    assert slurm.read(environ).num_workers == 2


# Task by task, the last digit of its node.
@pytest.mark.parametrize(
    ("distribution", "changes", "nodes"),
    [
        ("", {}, "111223"),
        ("block", {}, "111223"),
        ("block:cyclic,NoPack", {}, "111223"),
        ("*:block", {}, "111223"),
        ("cyclic", {}, "123121"),
        ("cyclic:block", {}, "123121"),
        ("cyclic,pack", {}, "123121"),
        ("plane", {"SLURM_DIST_PLANESIZE": "2"}, "112231"),
        ("plane=2", {"SLURM_DIST_PLANESIZE": "2"}, "112231"),
    ],
)
def test_distribution(
    distribution: str, changes: dict[str, str], nodes: str
) -> None:
    workers = slurm.read(_six(distribution, 0, **changes)).workers
    assert [worker[1] for worker in workers] == list(nodes)
    assert len(set(workers)) == 6
    locals_ = [int(worker.partition(":")[2]) - PORT for worker in workers]
    for node in "123":
        own = [
            local
            for local, each in zip(locals_, nodes, strict=True)
            if each == node
        ]
        assert own == list(range(len(own)))


def test_unset_distribution_is_block() -> None:
    environ = _six("block", 5)
    del environ["SLURM_DISTRIBUTION"]
    assert slurm.read(environ).address.startswith("n3:")


@pytest.mark.parametrize(
    "place",
    [{"SLURM_NODEID": "0"}, {"SLURM_NODEID": "1", "SLURM_LOCALID": "1"}],
    ids=["node", "local"],
)
def test_task_that_is_elsewhere_is_refused(place: dict[str, str]) -> None:
    """It would have been told the port of another task."""
    name, value = list(place.items())[-1]
    with pytest.raises(RequestError, match=f"{name}='{value}': .* task 3 has"):
        slurm.read(_six("block", 3, **place))


@pytest.mark.parametrize(
    "ports", ["12000-12002", "12000-12001,12002", "12000-12009"]
)
def test_reserved_ports(ports: str) -> None:
    workers = slurm.read(_six("block", 0, SLURM_STEP_RESV_PORTS=ports)).workers
    assert workers[:4] == ("n1:12000", "n1:12001", "n1:12002", "n2:12000")


def test_steps_have_ports_of_their_own() -> None:
    """Neighbouring jobs and steps may share a node."""
    seen = {
        address
        for job in range(100, 110)
        for step in range(30)
        for address in slurm.read(
            {**STEP, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)}
        ).workers
    }
    assert len(seen) == 2 * 10 * 30


@pytest.mark.parametrize("job", ["1", "67108864", "4294967295"])
@pytest.mark.parametrize("step", ["0", "639", "4294967290"])
def test_ports_are_below_those_of_the_system(job: str, step: str) -> None:
    environ = {**STEP, "SLURM_JOB_ID": job, "SLURM_STEP_ID": step}
    for worker in slurm.read(environ).workers:
        assert 10240 <= int(worker.partition(":")[2]) < 32768


def test_knows_tasks_of_a_step() -> None:
    assert slurm.is_several(STEP)
    assert slurm.is_job(STEP)
    assert slurm.is_job({"SLURM_JOBID": "7"})


@pytest.mark.parametrize("environ", [{}, BATCH, INTERACTIVE])
def test_knows_lone_process(environ: dict[str, str]) -> None:
    assert not slurm.is_several(environ)
    assert slurm.is_job(environ) == bool(environ)


def test_lone_task_can_be_asked_for() -> None:
    assert slurm.read(INTERACTIVE).num_workers == 1


@pytest.mark.parametrize("environ", [{}, BATCH])
def test_asks_for_srun(environ: dict[str, str]) -> None:
    with pytest.raises(RequestError, match="put srun before python"):
        slurm.read(environ)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SLURM_STEP_NODELIST": "n[1-"}, r"LIST='n\[1-': must be a list of"),
        ({"SLURM_STEP_NODELIST": "n[2-1]"}, "the range 2-1 runs backwards"),
        ({"SLURM_STEP_NODELIST": "n[1,1]"}, "would have the same address"),
        ({"SLURM_STEP_NODELIST": "n[1-3]"}, "2 tasks on 3; leave Slurm's"),
        (
            {"SLURM_STEP_NUM_TASKS": "two"},
            "SLURM_STEP_NUM_TASKS='two': must be",
        ),
        ({"SLURM_STEP_NUM_TASKS": "0"}, "SLURM_STEP_NUM_TASKS='0': must be"),
        ({"SLURM_STEP_NUM_TASKS": "3"}, "says 2 tasks on 2 nodes, but .* 3"),
        ({"SLURM_PROCID": "2"}, "SLURM_PROCID='2': must be .* from 0 to 1"),
        ({"SLURM_PROCID": ""}, "SLURM_PROCID is not set"),
        (
            {"SLURM_STEP_TASKS_PER_NODE": "1(x"},
            r"PER_NODE='1\(x': .* no number",
        ),
        ({"SLURM_STEP_TASKS_PER_NODE": "2,1"}, "says 3 tasks on 2 nodes"),
        ({"SLURM_NODEID": "0"}, "SLURM_NODEID='0': by .* task 1 has 1"),
        ({"SLURM_LOCALID": "1"}, "SLURM_LOCALID='1': by .* task 1 has 0"),
        ({"SLURM_DISTRIBUTION": "arbitrary"}, "use srun --distribution=block"),
        ({"SLURM_DISTRIBUTION": "plane"}, "SLURM_DIST_PLANESIZE is not set"),
        ({"SLURM_JOB_ID": "x"}, "SLURM_JOB_ID='x': must be an integer"),
        ({"SLURM_STEP_ID": "-1"}, "SLURM_STEP_ID='-1': must be an integer"),
        ({"SLURM_STEP_RESV_PORTS": "x"}, "RESV_PORTS='x': 'x' is neither"),
        ({"SLURM_STEP_RESV_PORTS": "0"}, "RESV_PORTS='0': must be 1 or more"),
        ({"SLURM_STEP_RESV_PORTS": "65536"}, "from 1 to 65535"),
    ],
    ids=lambda value: "=".join(*value.items()) if type(value) is dict else "",
)
def test_refuses(changes: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        slurm.read({**STEP, **changes})


def test_refuses_too_few_ports() -> None:
    with pytest.raises(RequestError, match=r"3 or more .* --resv-ports=3"):
        slurm.read(_six("block", 0, SLURM_STEP_RESV_PORTS="12000-12001"))


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_STEP_ID"])
def test_needs_number_of_step_without_reserved_ports(name: str) -> None:
    environ = {**STEP}
    del environ[name]
    with pytest.raises(RequestError, match="is not set; leave Slurm's"):
        slurm.read(environ)
    assert slurm.read({**environ, "SLURM_STEP_RESV_PORTS": "12000"})
