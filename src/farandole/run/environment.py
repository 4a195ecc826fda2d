"""Which rank this process is, and of which job: what launchers leave in the environment.

The rules:

- Everything here is a function of a mapping of variables; nothing is read from anywhere else, but for one
  launcher (see below).
- The innermost launcher counts: ``srun torchrun script.py`` is torchrun's job. So the order of the table at the
  end is from the inside outwards. Our own variables come first: who sets them by hand means them.
- A *key* names one attempt of one job: every rank of it computes the same text, and no other job or attempt does.
  Our launcher makes one that cannot be guessed. ``FARANDOLE_RENDEZVOUS`` replaces any other launcher's.
- MPICH's launcher says nothing in the environment that tells two jobs apart. Each of its ranks has a socket to it,
  though, and the kernel knows who made that socket.
- A variable that is there must be right. A wrong one is an error that names it, never a guess.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from farandole.errors import RendezvousError

RANK = "FARANDOLE_RANK"
WORLD_SIZE = "FARANDOLE_WORLD_SIZE"
RENDEZVOUS = "FARANDOLE_RENDEZVOUS"

# Slurm numbers the steps that srun did not start (a batch script, an interactive shell) from here on.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
_LARGEST = 2**32 - 1
_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_PREFIXES_OF_LAUNCHERS = ("TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMIX_", "PMI_", "SLURM_STEP_")
_NAMES_OF_LAUNCHERS = {
    *(RANK, WORLD_SIZE, RENDEZVOUS),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"),
    *("MPI_LOCALRANKID", "MPI_LOCALNRANKS", "I_MPI_HYDRA_UUID", "HYDI_CONTROL_FD", "PRTE_LAUNCHED"),
    *("SLURM_PROCID", "SLURM_LOCALID"),
}

Environ = Mapping[str, str]
PeerOf = Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class World:
    """One rank's place in its job.

    ``rank`` counts over all hosts, ``local_rank`` over those of this host; ``size`` and ``local_size`` are how many
    there are. ``key`` is the same for all ranks of this attempt and for no one else. ``launcher`` is who said so.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    key: str
    launcher: str


def world(environ: Environ) -> World | None:
    """This process's place in a job of one host, or None where no launcher has started it.

    Raises RendezvousError for a variable that is missing or malformed, and for a job of several hosts.

    >>> world({"FARANDOLE_RANK": "1", "FARANDOLE_WORLD_SIZE": "4", "FARANDOLE_RENDEZVOUS": "b1946ac9"})
    World(rank=1, size=4, local_rank=1, local_size=4, key='b1946ac9', launcher='farandole')
    """
    found = read(environ)
    if found is not None and found.local_size != found.size:
        raise RendezvousError(
            f"this job has {found.size} ranks, and only {found.local_size} of them are on this host (so says "
            f"{found.launcher}); ranks that share memory are all on one host: start the job on one, "
            "or make a group of the ranks of each host",
            rank=found.rank,
            size=found.size,
            local_size=found.local_size,
            launcher=found.launcher,
        )
    return found


def read(environ: Environ, peer_of: PeerOf | None = None) -> World | None:
    """As ``world``, but for a job of any number of hosts.

    ``peer_of(descriptor)`` is the pid of the process that made that socket, or None; it is asked for MPICH's only.
    """
    for markers, reader in _LAUNCHERS:
        if all(name in environ for name in markers):
            found = reader(environ, peer_of or creator_of)
            if found is not None:
                return _checked(found)
    return None


def meeting_key(key: str, name: str) -> str:
    """The key of one meeting out of the several that the ranks of one job may hold, each with its own ``name``.

    >>> meeting_key("b1946ac9", "world/0")
    'b1946ac9 world/0'
    """
    return f"{key} {name}"


def rank_variables(rank: int, size: int, key: str) -> dict[str, str]:
    """Our own variables for one rank."""
    return {RANK: str(rank), WORLD_SIZE: str(size), RENDEZVOUS: key}


def without_launchers(environ: Environ) -> dict[str, str]:
    """The variables without those by which a launcher tells a rank who it is: for jobs inside jobs."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _NAMES_OF_LAUNCHERS and not name.startswith(_PREFIXES_OF_LAUNCHERS)
    }


def creator_of(descriptor: int) -> int | None:
    """The pid of the process that made that Unix socket pair, or None where it is no such socket."""
    with contextlib.suppress(OSError), socket.socket(fileno=descriptor) as borrowed:
        try:
            if borrowed.family == socket.AF_UNIX:
                answer = borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
                return int(_PEER_CREDENTIALS.unpack(answer)[0]) or None
        finally:
            borrowed.detach()  # it stays open: it is the launcher's
    return None


def _checked(found: World) -> World:
    for what, rank, size in (("rank", found.rank, found.size), ("local rank", found.local_rank, found.local_size)):
        if not 0 <= rank < size:
            raise RendezvousError(
                f"{found.launcher} says that this is {what} {rank} of {size}; {what}s are numbered 0 to {size - 1}",
                rank=rank,
                size=size,
                launcher=found.launcher,
            )
    return found


def _number(environ: Environ, name: str, default: int | None = None) -> int:
    text = environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or re.fullmatch(r"[0-9]{1,10}", text) is None or int(text) > _LARGEST:
        got = "is not set" if text is None else f"is {text!r}"
        raise RendezvousError(f"{name} must be a whole number, and {got}", variable=name, got=text)
    return int(text)


def _text(environ: Environ, name: str) -> str:
    text = environ.get(name, "")
    if not 0 < len(text) <= 512:
        got = f"has {len(text)} characters" if text else "is not set, or empty"
        raise RendezvousError(f"{name} must be a text of 1 to 512 characters, and {got}", variable=name, got=text)
    return text


def _key(environ: Environ, of_launcher: Callable[[], str]) -> str:
    return _text(environ, RENDEZVOUS) if RENDEZVOUS in environ else of_launcher()


def _own(environ: Environ, _: PeerOf) -> World:
    rank, size = _number(environ, RANK), _number(environ, WORLD_SIZE)
    return World(rank, size, rank, size, _text(environ, RENDEZVOUS), "farandole")


def _torchrun(environ: Environ, _: PeerOf) -> World:
    run = _text(environ, "TORCHELASTIC_RUN_ID")
    attempt = _number(environ, "TORCHELASTIC_RESTART_COUNT", 0)
    return _torch_variables(environ, "torchrun", f"torchrun {run} {attempt}")


def _by_hand(environ: Environ, _: PeerOf) -> World:
    return _torch_variables(environ, "the environment", "variables")


def _torch_variables(environ: Environ, launcher: str, key: str) -> World:
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    return World(
        rank,
        size,
        _number(environ, "LOCAL_RANK", rank),
        _number(environ, "LOCAL_WORLD_SIZE", size),
        _key(environ, lambda: f"{key} {_text(environ, 'MASTER_ADDR')} {_number(environ, 'MASTER_PORT')}"),
        launcher,
    )


def _open_mpi(environ: Environ, _: PeerOf) -> World:
    return World(
        _number(environ, "OMPI_COMM_WORLD_RANK"),
        _number(environ, "OMPI_COMM_WORLD_SIZE"),
        _number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"),
        _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        _key(environ, lambda: f"openmpi {_text(environ, 'PMIX_NAMESPACE')}"),
        "Open MPI",
    )


def _hydra(environ: Environ, peer_of: PeerOf) -> World:
    launcher = "Intel MPI" if "I_MPI_HYDRA_UUID" in environ else "MPICH"

    def job() -> str:
        named: str | int | None = environ.get("I_MPI_HYDRA_UUID") or environ.get("PMI_PORT")
        if not named and "PMI_FD" in environ:
            named = peer_of(_number(environ, "PMI_FD"))
        if not named:
            raise RendezvousError(
                f"nothing tells this {launcher} job from others on this host, since PMI_FD is not a socket to the "
                f"launcher; give all ranks one name, as in: mpiexec -genv {RENDEZVOUS} NAME",
                variable="PMI_FD",
                got=environ.get("PMI_FD"),
            )
        return f"hydra {named}"

    return World(
        _number(environ, "PMI_RANK"),
        _number(environ, "PMI_SIZE"),
        _number(environ, "MPI_LOCALRANKID"),
        _number(environ, "MPI_LOCALNRANKS"),
        _key(environ, job),
        launcher,
    )


def _slurm(environ: Environ, _: PeerOf) -> World | None:
    step = _number(environ, "SLURM_STEP_ID")
    if step >= _FIRST_SPECIAL_STEP:
        return None  # a batch script or an interactive shell: one process, whatever SLURM_NTASKS says
    size, restarts = _number(environ, "SLURM_STEP_NUM_TASKS"), _number(environ, "SLURM_RESTART_COUNT", 0)
    return World(
        _number(environ, "SLURM_PROCID"),
        size,
        _number(environ, "SLURM_LOCALID"),
        _tasks_here(environ, size),
        _key(environ, lambda: f"slurm {_number(environ, 'SLURM_JOB_ID')}.{step} {restarts}"),
        "srun",
    )


def _tasks_here(environ: Environ, size: int) -> int:
    """How many of the step's tasks this node has, from a list such as ``4(x2),3``."""
    if _number(environ, "SLURM_STEP_NUM_NODES", 1) == 1:
        return size
    name, node = "SLURM_STEP_TASKS_PER_NODE", _number(environ, "SLURM_NODEID")
    text = _text(environ, name)
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", part)
        if match is None:
            break
        node -= int(match[2] or 1)
        if node < 0:
            return int(match[1])
    raise RendezvousError(
        f"{name} must be a list such as 4(x2),3 with an entry for this node, and is {text!r}", variable=name, got=text
    )


_TORCH = ("RANK", "WORLD_SIZE")
_LAUNCHERS: tuple[tuple[tuple[str, ...], Callable[[Environ, PeerOf], World | None]], ...] = (
    ((RANK,), _own),
    (("TORCHELASTIC_RUN_ID", *_TORCH), _torchrun),
    ((*_TORCH, "MASTER_ADDR", "MASTER_PORT"), _by_hand),
    (("OMPI_COMM_WORLD_RANK",), _open_mpi),
    (("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"), _hydra),
    (("SLURM_PROCID", "SLURM_STEP_ID"), _slurm),
    (_TORCH, _by_hand),  # incomplete: an error is better than a world of one
)
