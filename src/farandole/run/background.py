"""The collectives in the background: each returns at once, with a Work to wait for.

The same calls as those of the communicator, in the same order on all ranks, foreground and background
together; the background calls of a communicator are carried out one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from farandole.run import messages, requests
from farandole.run.arrays import Array
from farandole.run.executor import AUTO, Choice, Executor
from farandole.run.requests import Request
from farandole.run.work import Work


class Background:
    """``communicator.background``: see the methods of the same names of the communicator."""

    __slots__ = ("_check_open", "_executor")

    def __init__(self, executor: Executor, check_open: Callable[[str], None]) -> None:
        """Made by the communicator."""
        self._executor = executor
        self._check_open = check_open

    def all_reduce(
        self,
        array: Array,
        op: str = "sum",
        *,
        scale: float | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Work[Array]:
        """Combine the arrays of all ranks; every rank gets the result."""
        request = requests.all_reduce(self._executor.place, array, op, scale, out)
        return cast("Work[Array]", self._start(request, algorithm, timeout_s))

    def reduce(
        self,
        array: Array,
        root: int = 0,
        op: str = "sum",
        *,
        scale: float | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Work[Array | None]:
        """Combine the arrays of all ranks; the root gets the result."""
        request = requests.reduce(self._executor.place, array, root, op, scale, out)
        return self._start(request, algorithm, timeout_s)

    def broadcast(
        self, array: Array, root: int = 0, *, algorithm: Choice = AUTO, timeout_s: float | None = None
    ) -> Work[Array]:
        """Copy the root's array into that of every other rank."""
        request = requests.broadcast(self._executor.place, array, root)
        return cast("Work[Array]", self._start(request, algorithm, timeout_s))

    def reduce_scatter(
        self,
        array: Array,
        op: str = "sum",
        *,
        scale: float | None = None,
        counts: Sequence[int] | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Work[Array]:
        """Combine the arrays of all ranks; rank r gets the r-th part of the result."""
        request = requests.reduce_scatter(self._executor.place, array, op, scale, counts, out)
        return cast("Work[Array]", self._start(request, algorithm, timeout_s))

    def all_gather(
        self,
        array: Array,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Work[Array]:
        """Put the arrays of all ranks one after another; every rank gets the whole."""
        request = requests.all_gather(self._executor.place, array, counts, out)
        return cast("Work[Array]", self._start(request, algorithm, timeout_s))

    def gather(
        self,
        array: Array,
        root: int = 0,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Work[Array | None]:
        """As all_gather, but only the root gets the whole."""
        return self._start(requests.gather(self._executor.place, array, root, counts, out), algorithm, timeout_s)

    def scatter(
        self,
        array: Array | None,
        root: int = 0,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Work[Array]:
        """Share out the root's array."""
        request = requests.scatter(self._executor.place, array, root, counts, out)
        return cast("Work[Array]", self._start(request, algorithm, timeout_s))

    def all_to_all(
        self,
        array: Array,
        *,
        table: Array | None = None,
        algorithm: Choice = AUTO,
        out: Array | None = None,
        timeout_s: float | None = None,
    ) -> Work[Array]:
        """Rank r's d-th part becomes rank d's r-th part; ``table[r, d]`` are its rows, the same on all ranks."""
        request = requests.all_to_all(self._executor.place, array, table, out)
        return cast("Work[Array]", self._start(request, algorithm, timeout_s))

    def barrier(self, *, algorithm: Choice = AUTO, timeout_s: float | None = None) -> Work[None]:
        """Done when every rank has called it."""
        return cast("Work[None]", self._start(requests.barrier(self._executor.place), algorithm, timeout_s))

    def send(self, array: Array, to: int, tag: int = 0, *, timeout_s: float | None = None) -> Work[None]:
        """Send an array to one rank; done when the array may be used again."""
        self._check_open("send")
        return messages.send(self._executor, array, to, tag, timeout_s, waits=False)

    def receive(
        self, array: Array, source: int | None = None, tag: int = 0, *, timeout_s: float | None = None
    ) -> Work[int]:
        """Fill an array with what ``source`` (None: any rank) sends with that tag; the result is the sender."""
        self._check_open("receive")
        return messages.receive(self._executor, array, source, tag, timeout_s, waits=False)

    def _start(self, request: Request, algorithm: Choice, timeout_s: float | None) -> Work[Array | None]:
        self._check_open(request.collective)
        return self._executor.start(request, algorithm, timeout_s)
