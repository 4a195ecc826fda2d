"""A rank's session with one library: the same few calls for farandole, torch.distributed and MPI.

A call is made as that library's users make it: a NumPy array in, the result in another one. Where the library works in
place only (all_reduce of torch.distributed), the copy that its user needs belongs to the call. Libraries are
imported when their session begins, in a process that runs nothing else.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from farandole.bench.calls import Array
from farandole.errors import UnsupportedError, UsageError
from farandole.run.start import init

Call = Callable[[], object]
_OPTIONAL = importlib.import_module  # torch and mpi4py are no requirements of this package


@dataclass(frozen=True, slots=True)
class Task:
    """One collective on a rank's arrays; ``counts`` are the elements of each rank's part."""

    collective: str
    given: Array
    out: Array
    counts: list[int]

    @property
    def is_even(self) -> bool:
        """Whether all parts have one length."""
        return len(set(self.counts)) == 1


class Session(Protocol):
    """What a rank does with its library."""

    rank: int
    size: int
    version: str

    def prepare(self, task: Task) -> Call:
        """The call; UnsupportedError where the library has none for this task."""

    def barrier(self) -> None:
        """Return when all ranks have come."""

    def detail(self) -> str:
        """How the last call was carried out, where the library says so."""

    def close(self) -> None:
        """Leave."""


class FarandoleSession:
    """Ours, on NumPy arrays."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from farandole import __version__  # noqa: PLC0415 - the package imports this module's layer

        self._algorithm = settings["algorithm"]
        self._communicator = init(timeout_s=settings["timeout_s"])
        self.rank, self.size = self._communicator.rank, self._communicator.size
        self.version = f"farandole {__version__}"

    def prepare(self, task: Task) -> Call:
        """The method of that name, with counts only where parts are uneven."""
        ours, how, given, out = self._communicator, self._algorithm, task.given, task.out
        counts = None if task.is_even else task.counts
        if task.collective == "all_reduce":
            return lambda: ours.all_reduce(given, algorithm=how, out=out)
        if task.collective == "reduce_scatter":
            return lambda: ours.reduce_scatter(given, counts=counts, algorithm=how, out=out)
        return lambda: ours.all_gather(given, counts=counts, algorithm=how, out=out)

    def barrier(self) -> None:
        """Return when all ranks have come."""
        self._communicator.barrier()

    def detail(self) -> str:
        """The algorithm."""
        return self._communicator.last_algorithm

    def close(self) -> None:
        """Leave."""
        self._communicator.close()


class TorchSession:
    """torch.distributed with one of its backends, on CPU tensors that share the arrays' memory."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch, self._distributed = _OPTIONAL("torch"), _OPTIONAL("torch.distributed")
        if settings["backend"] == "farandole":
            _OPTIONAL("farandole.torch")  # registers itself; a later layer, so it is named and not imported
        self._torch = torch
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._distributed.init_process_group(
            settings["backend"], init_method=f"file://{settings['meeting']}", rank=self.rank, world_size=self.size
        )
        self.version = f"torch {torch.__version__}"

    def prepare(self, task: Task) -> Call:
        """The function of that name on whole tensors."""
        given, out = self._torch.from_numpy(task.given), self._torch.from_numpy(task.out)
        if task.collective == "all_reduce":
            return lambda: (out.copy_(given), self._distributed.all_reduce(out))
        if not task.is_even:
            raise UnsupportedError(f"torch.distributed has no {task.collective} of tensors with uneven parts")
        if task.collective == "reduce_scatter":
            return lambda: self._distributed.reduce_scatter_tensor(out, given)
        return lambda: self._distributed.all_gather_into_tensor(out, given)

    def barrier(self) -> None:
        """Return when all ranks have come."""
        self._distributed.barrier()

    def detail(self) -> str:
        """Nothing: it does not say."""
        return ""

    def close(self) -> None:
        """Leave."""
        self._distributed.destroy_process_group()


class MpiSession:
    """MPI through mpi4py, on NumPy arrays; the environment says which library."""

    def __init__(self, _settings: dict[str, Any]) -> None:
        self._mpi = _OPTIONAL("mpi4py.MPI")
        self._world = self._mpi.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size
        words = self._mpi.Get_library_version().replace("\0", "").split("\n")[0].split(",")[0]
        self.version = " ".join(words.split())

    def prepare(self, task: Task) -> Call:
        """The method of that name, its form for uneven parts only where they are."""
        world, given, out, counts = self._world, task.given, task.out, task.counts
        if task.collective == "all_reduce":
            return lambda: world.Allreduce(given, out)
        if task.collective == "reduce_scatter":
            if task.is_even:
                return lambda: world.Reduce_scatter_block(given, out)
            return lambda: world.Reduce_scatter(given, out, counts)
        if task.is_even:
            return lambda: world.Allgather(given, out)
        return lambda: world.Allgatherv(given, (out, counts))

    def barrier(self) -> None:
        """Return when all ranks have come."""
        self._world.Barrier()

    def detail(self) -> str:
        """Nothing: it does not say."""
        return ""

    def close(self) -> None:
        """Leave."""
        self._mpi.Finalize()


SESSIONS: dict[str, Callable[[dict[str, Any]], Session]] = {
    "farandole": FarandoleSession,
    "torch": TorchSession,
    "mpi": MpiSession,
}


def open_session(kind: str, settings: dict[str, Any]) -> Session:
    """The session of a rank of a job of that kind."""
    if kind not in SESSIONS:
        raise UsageError(f"there is no session of kind {kind!r}", got=kind)
    return SESSIONS[kind](settings)
