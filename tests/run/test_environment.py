from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import RendezvousError
from farandole.run.environment import (
    World,
    creator_of,
    meeting_key,
    rank_variables,
    read,
    without_launchers,
    world,
)

# As the launchers themselves have set them, for rank 1 of 2 on one host.
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "0",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "39163",
    "TORCHELASTIC_RUN_ID": "656826bb-f559-44cf-a116-9cdbcb3ff3e0",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-vm-4612@1",
    "PMIX_RANK": "1",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "11", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
INTEL_MPI = {**MPICH, "I_MPI_HYDRA_UUID": "e0150000-8f0a-6cc5-6d61-0600430b134f"}
SRUN = {
    "SLURM_JOB_ID": "200505",
    "SLURM_STEP_ID": "3",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2",
}
OWN = rank_variables(1, 2, "d4bc374d")
BY_HAND = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
ALL = {
    "farandole": OWN,
    "torchrun": TORCHRUN,
    "the environment": BY_HAND,
    "Open MPI": OPEN_MPI,
    "Intel MPI": INTEL_MPI,
    "srun": SRUN,
}


def one(found: World | None) -> World:
    assert found is not None
    return found


@pytest.mark.parametrize("launcher", ALL)
def test_every_launcher_says_who_this_rank_is(launcher: str) -> None:
    found = one(world(ALL[launcher]))
    assert (found.rank, found.size, found.local_rank, found.local_size) == (1, 2, 1, 2)
    assert found.launcher == launcher


@pytest.mark.parametrize("launcher", ALL)
def test_both_ranks_have_one_key_and_no_other_launcher_has_it(launcher: str) -> None:
    other_rank = {
        name: "0" if value == "1" and name.endswith(("RANK", "PROCID", "LOCALID", "RANKID")) else value
        for name, value in ALL[launcher].items()
    }
    mine, other = one(world(ALL[launcher])), one(world(other_rank))
    assert (mine.rank, other.rank) == (1, 0)
    assert mine.key == other.key
    assert [name for name in ALL if one(world(ALL[name])).key == mine.key] == [launcher]


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (TORCHRUN, {"TORCHELASTIC_RESTART_COUNT": "1"}),
        (TORCHRUN, {"TORCHELASTIC_RUN_ID": "none"}),
        (TORCHRUN, {"MASTER_PORT": "39164"}),
        (BY_HAND, {"MASTER_PORT": "29501"}),
        (OPEN_MPI, {"PMIX_NAMESPACE": "prterun-vm-4612@2"}),
        (INTEL_MPI, {"I_MPI_HYDRA_UUID": "b0150000-be34-ebc4-6d61-060084055f49"}),
        (SRUN, {"SLURM_STEP_ID": "4"}),
        (SRUN, {"SLURM_JOB_ID": "200506"}),
        (SRUN, {"SLURM_RESTART_COUNT": "1"}),
    ],
)
def test_another_job_or_attempt_has_another_key(before: dict[str, str], change: dict[str, str]) -> None:
    assert one(world(before)).key != one(world({**before, **change})).key


def test_no_launcher_is_no_world() -> None:
    assert world({"PATH": "/usr/bin", "HOME": "/root", "SLURM_JOB_ID": "7"}) is None


def test_a_batch_script_of_slurm_is_one_process_whatever_the_job_has() -> None:
    batch = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}
    assert world(batch) is None
    assert world({**SRUN, "SLURM_STEP_ID": "4294967291"}) is None


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("srun", "torchrun"),
        ("Open MPI", "torchrun"),
        ("srun", "Open MPI"),
        ("srun", "Intel MPI"),
        ("srun", "farandole"),
    ],
)
def test_the_innermost_launcher_counts(outer: str, inner: str) -> None:
    both = {**ALL[outer], **ALL[inner]}
    assert one(world(both)).launcher == inner


@pytest.mark.parametrize("launcher", ALL)
def test_our_variables_replace_those_of_the_launcher_around(launcher: str) -> None:
    variables = {**ALL[launcher], "PATH": "/bin"}
    assert without_launchers(variables)["PATH"] == "/bin"
    assert world(without_launchers(variables)) is None


def test_a_name_given_by_hand_replaces_the_launchers_key() -> None:
    named = {**OPEN_MPI, "FARANDOLE_RENDEZVOUS": "mine"}
    del named["PMIX_NAMESPACE"]
    assert one(world(named)) == World(1, 2, 1, 2, "mine", "Open MPI")


@pytest.mark.parametrize(
    ("variables", "local_size"),
    [
        ({**TORCHRUN, "WORLD_SIZE": "8"}, 2),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "8"}, 2),
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_TASKS_PER_NODE": "3(x2),2"}, 3),
    ],
)
def test_a_job_of_several_hosts_is_refused_and_says_so(variables: dict[str, str], local_size: int) -> None:
    with pytest.raises(RendezvousError, match=rf"has 8 ranks, and only {local_size} of them") as caught:
        world(variables)
    assert caught.value.facts["size"] == 8
    assert caught.value.facts["local_size"] == local_size
    assert one(read(variables)).size == 8


@pytest.mark.parametrize(("node", "tasks"), [("0", 4), ("1", 4), ("2", 3), ("3", 1)])
def test_slurms_list_of_tasks_is_read_node_by_node(node: str, tasks: int) -> None:
    variables = {"SLURM_STEP_NUM_TASKS": "12", "SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3,1"}
    assert one(read({**SRUN, **variables, "SLURM_NODEID": node, "SLURM_LOCALID": "0"})).local_size == tasks


@pytest.mark.parametrize(
    ("variables", "culprit"),
    [
        ({**OWN, "FARANDOLE_RANK": "one"}, "FARANDOLE_RANK"),
        ({**OWN, "FARANDOLE_RANK": "-1"}, "FARANDOLE_RANK"),
        ({**OWN, "FARANDOLE_RANK": "١"}, "FARANDOLE_RANK"),
        ({**OWN, "FARANDOLE_RANK": ""}, "FARANDOLE_RANK"),
        ({**OWN, "FARANDOLE_WORLD_SIZE": "1e3"}, "FARANDOLE_WORLD_SIZE"),
        ({**OWN, "FARANDOLE_RENDEZVOUS": ""}, "FARANDOLE_RENDEZVOUS"),
        ({**OWN, "FARANDOLE_RENDEZVOUS": "x" * 513}, "FARANDOLE_RENDEZVOUS"),
        ({"FARANDOLE_RANK": "0"}, "FARANDOLE_WORLD_SIZE"),
        ({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "x"}, "TORCHELASTIC_RESTART_COUNT"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h"}, "MASTER_PORT"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE"),
        ({**SRUN, "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "4;2"}, "SLURM_STEP_TASKS_PER_NODE"),
        ({**SRUN, "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "2"}, "SLURM_STEP_TASKS_PER_NODE"),
        ({**SRUN, "SLURM_PROCID": "9" * 11}, "SLURM_PROCID"),
    ],
)
def test_a_malformed_variable_is_named(variables: dict[str, str], culprit: str) -> None:
    with pytest.raises(RendezvousError, match=culprit) as caught:
        world(variables)
    assert caught.value.facts["variable"] == culprit


def test_a_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(RendezvousError, match=r"rank 2 of 2; ranks are numbered 0 to 1"):
        world({**OWN, "FARANDOLE_RANK": "2"})


def test_mpich_jobs_are_told_apart_by_the_process_at_the_other_end_of_their_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = one(world({**MPICH, "PMI_FD": str(ours.fileno())}))
        assert found.key == f"hydra {os.getpid()}"
        assert found.launcher == "MPICH"
        assert ours.fileno() != -1
        theirs.send(b"still open")
        assert ours.recv(10) == b"still open"


def test_an_mpich_job_without_that_socket_is_told_what_to_do(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        assert creator_of(file.fileno()) is None
        with pytest.raises(RendezvousError, match="-genv FARANDOLE_RENDEZVOUS NAME"):
            world({**MPICH, "PMI_FD": str(file.fileno())})
    assert one(world({**MPICH, "FARANDOLE_RENDEZVOUS": "mine"})).key == "mine"


def test_meetings_of_one_job_have_their_own_keys() -> None:
    keys = [meeting_key(key, name) for key in ("job", "job 1") for name in ("world/0", "world/1", "rows")]
    assert len(set(keys)) == 6


SCRIPT = """
import json, os, sys
from farandole.run.environment import world
from farandole.run.rendezvous import meet

me = world(os.environ)
with meet(me.rank, me.size, me.key, 30, 1 << 16) as meeting:
    line = [me.rank, me.size, me.local_rank, me.local_size, me.key, me.launcher, meeting.pids[me.rank] == os.getpid()]
os.write(1, (json.dumps(line) + "\\n").encode())
sys.exit(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "1")) == 0)  # the first attempt fails
"""


def run_under(launcher: list[str], folder: Path) -> list[list[Any]]:
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [*launcher, sys.executable, str(script)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


def check_ranks(lines: list[list[Any]], launcher: str) -> None:
    ranks, sizes, local_ranks, local_sizes, keys, launchers, pids_are_right = zip(*lines, strict=True)
    assert ranks == (0, 1, 2)
    assert sorted(local_ranks) == [0, 1, 2]  # mpirun may number them otherwise
    assert set(sizes) == set(local_sizes) == {3}
    assert len(set(keys)) == 1
    assert set(launchers) == {launcher}
    assert all(pids_are_right)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_ranks_of_torchrun_meet_and_those_of_its_next_attempt_elsewhere(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", "--no-python"]
    lines = run_under([*torchrun, "--max-restarts=1", "--monitor-interval=0.1"], tmp_path)
    keys = {line[4] for line in lines}
    assert len(keys) == 2
    for key in keys:
        check_ranks([line for line in lines if line[4] == key], "torchrun")


def mpirun() -> str | None:
    path = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if path is None:
        return None
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    return path if "Open MPI" in version else None


@pytest.mark.skipif(mpirun() is None, reason="Open MPI's mpirun is not installed")
def test_ranks_of_mpirun_meet(tmp_path: Path) -> None:
    path = mpirun()
    assert path is not None
    lines = run_under([path, "--allow-run-as-root", "--oversubscribe", "-n", "3"], tmp_path)
    check_ranks(lines, "Open MPI")
