"""Work: a call that goes on in the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from farandole import _core
from farandole.errors import CommunicationError

Result = TypeVar("Result")

_FOREVER_S = 1e9


class Work(Generic[Result]):
    """A call in flight; wait for it from any thread, in any order, as often as you like.

    The arrays of the call must not be touched before ``wait`` has returned.
    """

    __slots__ = ("_error", "_result", "_work")

    def __init__(
        self,
        work: _core.Work | None,
        result: Callable[[], Result],
        error: Callable[[int, int], CommunicationError] | None = None,
    ) -> None:
        """Made by ``communicator.background``. ``work`` is None for what was done at once."""
        self._work = work
        self._result = result
        self._error = error

    def __repr__(self) -> str:
        return f"<farandole.Work, {'done' if self.done() else 'in flight'}>"

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._work is None or self._work.done()

    def wait(self, timeout_s: float | None = None) -> Result:
        """Wait until it is done; its result, as the call in the foreground would return it.

        Raises what that call would raise, or TimeoutError after ``timeout_s``: then the call goes on.
        """
        if self._work is not None:
            if not self._work.wait(_FOREVER_S if timeout_s is None else timeout_s):
                raise TimeoutError(f"not done within {timeout_s} s; the call goes on")
            failure, peer = self._work.verdict()
            if failure and self._error is not None:
                raise self._error(failure, peer)
        return self._result()
