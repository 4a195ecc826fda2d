"""One group's way to the engine: from pieces of memory to a call in flight.

A call is planned once; a plan is found again by what it depends on. What asks to be waited for runs on the caller's
thread, the rest in the background, in order. A world of one rank has no engine: what goes in comes out.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from farandole import _core
from farandole.errors import ClosedError, CommunicationError
from farandole.run.arrays import Array
from farandole.run.call import Call, SharedMemory, compiled
from farandole.run.communicator import Communicator
from farandole.run.engine import Engine, Planned
from farandole.run.shared import SHARED_FROM_BYTES, SHARING
from farandole.torch.choice import AUTO, Choice
from farandole.torch.tensors import NAMES, Finish, overlap
from farandole.torch.work import Describe, Work

LOG = logging.getLogger("farandole.torch")
PLANS_KEPT = 256

Key = tuple[str, tuple[int, ...], str, int, str, int, Choice, SharedMemory | None]


class Channel:
    """Carries out collectives for one group."""

    def __init__(self, communicator: Communicator, name: str, timeout_s: float, chosen: dict[str, Choice]) -> None:
        """``timeout_s`` is for calls without a timeout of their own; ``chosen`` are algorithms by collective."""
        self._communicator: Communicator | None = communicator
        self.engine: Engine | None = communicator.engine
        self._choices = communicator.choices
        self.shared = communicator.shared
        self.size = communicator.size
        self._rank = communicator.rank
        self.name = name
        self.timeout_s = timeout_s
        self._chosen = chosen
        self.last_algorithm = ""
        self.is_open = True
        self.known: dict[Hashable, tuple[Planned | None, str]] = {}
        self._plans: dict[Key, tuple[Planned | None, str]] = {}
        _open.add(self)

    @property
    def chosen(self) -> dict[str, Choice]:
        """The algorithms that were asked for, by collective."""
        return self._chosen

    @chosen.setter
    def chosen(self, chosen: dict[str, Choice]) -> None:
        self._chosen = chosen
        self.known.clear()

    def remember(self, key: Hashable, found: tuple[Planned | None, str]) -> None:
        """Have a call in ``known`` by a key of the caller's, until a choice changes or the group ends."""
        if len(self.known) >= PLANS_KEPT:
            self.known.clear()
        if self.is_open:
            self.known[key] = found

    def run(
        self,
        collective: str,
        counts: tuple[int, ...],
        source: Tensor | None,
        target: Tensor | None,
        tensors: Sequence[Tensor],
        *,
        op: str = "",
        root: int = 0,
        in_place: int | None = None,
        timeout_s: float = 0,
        waits: bool = False,
        finish: Finish | None = None,
    ) -> Work:
        """Carry out one collective on plain memory; ``tensors`` are what the future of the work holds.

        ``counts`` are the lengths of the blocks, ``in_place`` is how many bytes into the source the target may begin,
        ``finish`` is called when the target is written, ``timeout_s`` counts if it is more than 0.
        """
        if not self.is_open:
            raise ClosedError(f"{collective}: the process group {self.name} is destroyed", state="closed")
        if source is not None and target is not None and source is not target and overlap(source, target, in_place):
            source = source.clone()
        sample = target if source is None else source
        dtype, itemsize = ("", 1) if sample is None else (NAMES[sample.dtype], sample.element_size())
        memory = None
        if self.shared.known and source is not None and target is not None:
            memory = self.place(collective, counts, source.data_ptr(), target.data_ptr(), itemsize, in_place)
        wish = self._chosen.get(collective, AUTO)
        found = self._planned((collective, counts, dtype, itemsize, op, root, wish, memory))
        engine, planned = self.engine, found[0]
        if engine is None or planned is None:
            _alone(source, target)
            if finish is not None:
                finish()
            return Work(tensors, found=found)
        limit_s = timeout_s if timeout_s > 0 else self.timeout_s
        first = 0 if source is None else source.data_ptr()
        second = 0 if target is None else target.data_ptr()
        if waits:
            engine.run(planned, first, second, limit_s)
            if finish is not None:
                finish()
            return Work(tensors, found=found)
        work = self.start(engine, planned, first, second, limit_s, (source, target), tensors, finish)
        work.found = found
        return work

    def start(
        self,
        engine: Engine,
        planned: Planned,
        source: int,
        target: int,
        limit_s: float,
        keep: object,
        tensors: Sequence[Tensor],
        finish: Finish | None = None,
    ) -> Work:
        """Begin a call on memory at these addresses; what ``keep`` holds is kept alive until it is done."""
        # The engine calls ``finish`` before anyone can see that it is done.
        native = engine.start(planned, source, target, limit_s, keep, finish)
        return Work(tensors, (native,), _describe(engine, limit_s, ""))

    def message(
        self, memory: Tensor, peer: int, tag: int, *, receives: bool, timeout_s: float = 0
    ) -> tuple[_core.Work, Describe]:
        """Send plain memory to a rank, or receive it, in the background; and what tells of its failure."""
        engine = self.engine
        if not self.is_open or engine is None:
            raise ClosedError(f"the process group {self.name} is destroyed, or of one rank", state="closed")
        limit_s = timeout_s if timeout_s > 0 else self.timeout_s
        native = engine.message_at(
            memory.data_ptr(),
            memory.numel() * memory.element_size(),
            NAMES[memory.dtype],
            receives=receives,
            peer=peer,
            tag=tag,
            timeout_s=limit_s,
            waits=False,
            keep=memory,
        )
        whom = "any rank" if peer == _core.ANY_RANK else f"rank {peer}"
        what = f"{'receive from' if receives else 'send to'} {whom}, tag {tag}"
        return native, _describe(engine, limit_s, what)

    def empty_array(self, size_bytes: int) -> Array:
        """So many bytes of memory that all ranks see; all ranks call this together."""
        if self._communicator is None:
            raise ClosedError(f"empty: the process group {self.name} is destroyed", state="closed")
        return self._communicator.empty(size_bytes, np.uint8)

    def empty(self, size_bytes: int) -> Tensor:
        """As ``empty_array``, as a tensor of bytes."""
        return torch.from_numpy(self.empty_array(size_bytes))

    def place(
        self, collective: str, counts: tuple[int, ...], source: int, target: int, itemsize: int, in_place: int | None
    ) -> SharedMemory | None:
        """Where in such memory the source of a call lies, if it is in it: the source and the target by address.

        ``in_place`` is how many bytes into the source the target begins in a call in place.
        """
        whole = sum(counts) * itemsize
        if collective not in SHARING or whole < SHARED_FROM_BYTES:
            return None
        gathers, shares_out = collective == "all_gather", collective == "reduce_scatter"
        rank = self._rank
        mine = counts[rank] * itemsize if gathers or shares_out else whole
        if collective == "all_to_all":
            mine = sum(counts[rank * self.size : (rank + 1) * self.size]) * itemsize
        read, written = (mine if not shares_out else whole), (mine if not gathers else whole)
        overlaps = source < target + written and target < source + read
        if gathers and overlaps and len(set(counts)) > 1:
            return None
        return self.shared.at(source, read, target if overlaps else None, in_place, is_part=gathers)

    def close(self, drain_s: float) -> None:
        """Leave the group; calls in flight may end, if that takes no longer than ``drain_s``."""
        self.is_open = False
        self.engine = None  # PyTorch may keep the group for ever, but the engine goes
        self._plans.clear()
        self.known.clear()
        communicator, self._communicator = self._communicator, None
        if communicator is not None:
            with suppress(CommunicationError):
                communicator.close(drain_s)

    def _planned(self, key: Key) -> tuple[Planned | None, str]:
        found = self._plans.get(key)
        if found is None:
            found = self._plan(key)
        self.last_algorithm = found[1]
        if LOG.isEnabledFor(logging.DEBUG):
            collective, counts, dtype, _, op, *_ = key
            LOG.debug("group %s: %s %s %s, %s elements: %s", self.name, collective, dtype, op, sum(counts), found[1])
        return found

    def _plan(self, key: Key) -> tuple[Planned | None, str]:
        collective, counts, dtype, itemsize, op, root, algorithm, memory = key
        if self.engine is None:
            name = "" if algorithm == AUTO else compiled(collective, algorithm, 1, root)[0].name
            return self._keep(key, (None, name))
        if algorithm == AUTO:
            algorithm = self._choices.algorithm(collective, counts, itemsize)
        call = Call(collective, algorithm, counts, dtype, itemsize, op, root, memory)
        return self._keep(key, (self.engine.planned(call), call.algorithm_name))

    def _keep(self, key: Key, made: tuple[Planned | None, str]) -> tuple[Planned | None, str]:
        if len(self._plans) >= PLANS_KEPT:
            self._plans.pop(next(iter(self._plans)))
        self._plans[key] = made
        return made


_open: weakref.WeakSet[Channel] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for channel in list(_open):
        channel.close(0)


def _alone(source: Tensor | None, target: Tensor | None) -> None:
    if source is not None and target is not None and source is not target:
        target.detach().view(-1).copy_(source.detach().view(-1))


def _describe(engine: Engine, limit_s: float, what: str) -> Callable[[int, int], CommunicationError]:
    return lambda failure, peer: engine.error(failure, peer, limit_s, what)
