"""A rank's session with one library: the same few calls for farandole, torch.distributed and MPI.

A call is made as that library's users make it: a NumPy array in, the result in another one. Where the library works in
place only (all_reduce of torch.distributed), the copy that its user needs belongs to the call; but if all libraries are
called through torch.distributed, whose users work in place as well, the copy is made before the call, and not timed.
Libraries are imported when their session begins, in a process that runs nothing else.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from farandole.bench.calls import Array
from farandole.errors import UnsupportedError, UsageError
from farandole.run.start import init

Action = Callable[[], object]
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


class Call(NamedTuple):
    """What is timed, and what must be done before each time, if anything."""

    timed: Action
    before: Action | None = None


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

    def line_ns(self) -> int:
        """How long the core of the farthest rank takes to hand over a line of memory, as far as the library knows."""

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
        calls: dict[str, Action] = {
            "all_reduce": lambda: ours.all_reduce(given, algorithm=how, out=out),
            "reduce_scatter": lambda: ours.reduce_scatter(given, counts=counts, algorithm=how, out=out),
            "all_gather": lambda: ours.all_gather(given, counts=counts, algorithm=how, out=out),
            "all_to_all": lambda: ours.all_to_all(given, algorithm=how, out=out),
        }
        return Call(calls[task.collective])

    def barrier(self) -> None:
        """Return when all ranks have come."""
        self._communicator.barrier()

    def detail(self) -> str:
        """The algorithm."""
        return self._communicator.last_algorithm

    def line_ns(self) -> int:
        """What it has found out."""
        return max(self._communicator.distances_ns())

    def close(self) -> None:
        """Leave."""
        self._communicator.close()


class TorchSession:
    """torch.distributed with one of its backends, on CPU tensors that share the arrays' memory."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch, self._distributed = _OPTIONAL("torch"), _OPTIONAL("torch.distributed")
        self._ours = None
        options = {}
        if settings["backend"] == "farandole":
            self._ours = _OPTIONAL("farandole.torch")  # registers itself; a later layer, so it is named, not imported
            options["pg_options"] = {"algorithm": settings["algorithm"]}
        self._torch = torch
        self._in_place = settings["in_place"]
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        meeting = f"file://{settings['meeting']}"
        self._distributed.init_process_group(
            settings["backend"], init_method=meeting, rank=self.rank, world_size=self.size, **options
        )
        self.version = f"torch {torch.__version__}"

    def prepare(self, task: Task) -> Call:
        """The function of that name on whole tensors; for equal parts in one tensor it is called single since 2.13."""
        given, out = self._torch.from_numpy(task.given), self._torch.from_numpy(task.out)
        torch, counts = self._distributed, task.counts
        if task.collective == "all_reduce":
            if self._in_place:
                return Call(lambda: torch.all_reduce(out), lambda: out.copy_(given))
            return Call(lambda: (out.copy_(given), torch.all_reduce(out)))
        if task.collective == "all_to_all":
            if task.is_even:
                return Call(lambda: torch.all_to_all_single(out, given))
            return Call(lambda: torch.all_to_all_single(out, given, [counts[self.rank]] * self.size, counts))
        if not task.is_even:
            raise UnsupportedError(f"torch.distributed has no {task.collective} of tensors with uneven parts")
        if task.collective == "reduce_scatter":
            return Call(lambda: torch.reduce_scatter_single(out, given))
        return Call(lambda: torch.all_gather_single(out, given))

    def barrier(self) -> None:
        """Return when all ranks have come."""
        self._distributed.barrier()

    def detail(self) -> str:
        """The algorithm, where the backend is ours; Gloo does not say."""
        return "" if self._ours is None else str(self._ours.last_algorithm())

    def line_ns(self) -> int:
        """0: it does not say."""
        return 0

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
        mine = [counts[self.rank]] * self.size
        even: dict[str, Action] = {
            "all_reduce": lambda: world.Allreduce(given, out),
            "reduce_scatter": lambda: world.Reduce_scatter_block(given, out),
            "all_gather": lambda: world.Allgather(given, out),
            "all_to_all": lambda: world.Alltoall(given, out),
        }
        uneven: dict[str, Action] = {
            "all_reduce": even["all_reduce"],
            "reduce_scatter": lambda: world.Reduce_scatter(given, out, counts),
            "all_gather": lambda: world.Allgatherv(given, (out, counts)),
            "all_to_all": lambda: world.Alltoallv((given, counts), (out, mine)),
        }
        return Call((even if task.is_even else uneven)[task.collective])

    def barrier(self) -> None:
        """Return when all ranks have come."""
        self._world.Barrier()

    def detail(self) -> str:
        """Nothing: it does not say."""
        return ""

    def line_ns(self) -> int:
        """0: it does not say."""
        return 0

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
