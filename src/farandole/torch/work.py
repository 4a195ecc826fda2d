"""Work: a call of torch.distributed that goes on, in the form that PyTorch's Python and C++ callers need.

The rules:

- ``wait`` raises the call's own exception, on every caller, as often as it is called.
- What comes after the engine's work is done once, by whoever first asks how it ended.
- The future is made when it is asked for. It holds the tensors of the result, and fails through a chained function:
  that is the one way in which both Python and C++ see the failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from farandole import _core
from farandole.errors import CommunicationError, TimeLimitError
from farandole.run.engine import Planned
from farandole.torch.completions import THREADS
from farandole.torch.tensors import Finish

if TYPE_CHECKING:
    from farandole.torch.profiling import Event

Describe = Callable[[int, int], CommunicationError]

_NO_TIME = timedelta(0)
_FOREVER_S = 1e9


class Work(dist.Work):
    """A call in flight, or done: what the methods of the process group return."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        natives: Sequence[_core.Work] = (),
        describe: Describe | None = None,
        finish: Finish | None = None,
        found: tuple[Planned | None, str] | None = None,
    ) -> None:
        """``tensors`` are the result; ``natives`` what the engine does for it, in order; ``finish`` comes after it.

        ``describe`` makes an exception of what the engine reports; ``found`` is the plan, for those who repeat it.
        """
        super().__init__()
        self.tensors = tensors
        self._natives = natives
        self._describe = describe
        self._finish = finish
        self._error: Exception | None = None
        self._sender = -1
        self._is_settled = not natives
        self.found = found
        self._future: Any = None
        self.event: Event | None = None  # what a profiler sees of it
        if natives:
            self._lock = threading.Lock()

    @property
    def pending(self) -> Sequence[_core.Work]:
        """What the engine may still be doing for it."""
        return self._natives

    def wait(self, timeout: timedelta = _NO_TIME) -> bool:
        """Wait until it is done, raise what went wrong. TimeLimitError after ``timeout``; then the call goes on."""
        if not self._is_settled:
            limit_s = timeout.total_seconds()
            for native in self._natives:
                if not native.wait(limit_s if limit_s > 0 else _FOREVER_S):
                    raise TimeLimitError(f"not done within {limit_s:g} s; the call goes on", timeout_s=limit_s)
            self.settle()
        if self.event is not None:
            self.event.wait()
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """As ``wait``."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        if not self._is_settled and all(native.done() for native in self._natives):
            self.settle()
        return self._is_settled

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """What went wrong, once it has ended."""
        return self._error if self.is_completed() else None

    def result(self) -> list[Tensor]:
        """The tensors that hold the result; waits for it."""
        self.wait()
        return list(self.tensors)

    def source_rank(self) -> int:
        """The sender of what was received."""
        self.wait()
        return self._sender

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> Any:
        """A future of the tensors."""
        if self._future is None:
            base: Any = torch.futures.Future()

            def result(_: Any) -> list[Tensor]:
                if self._error is not None:
                    raise self._error
                return list(self.tensors)

            self._future = base.then(result)
            if self.is_completed():
                base.set_result(None)
            else:
                THREADS.start(lambda: self._complete(base))
        return self._future

    def _complete(self, base: Any) -> None:
        for native in self._natives:
            native.wait(_FOREVER_S)
        self.settle()
        base.set_result(None)

    def settle(self) -> None:
        """Find out how it ended, and bring the result where it belongs. All that was in flight has ended."""
        with self._lock:
            if self._is_settled:
                return
            try:
                for native in self._natives:
                    failure, peer = native.verdict()
                    if failure and self._describe is not None:
                        raise self._describe(failure, peer)  # noqa: TRY301
                if self._finish is not None:
                    self._finish()
            except Exception as error:  # noqa: BLE001
                self._error = error
            self._is_settled = True
            self._finish = None
            self._natives = ()


class Received(Work):
    """A receive, which knows its sender."""

    def settle(self) -> None:
        """As for any work."""
        for native in self._natives:
            self._sender = native.message()[0]
        super().settle()


def together(works: Sequence[Work], tensors: Sequence[Tensor], then: Finish | None = None) -> Work:
    """One work that is done when all of these are, and ``then`` after them; the first failure is its failure."""

    def finish() -> None:
        for work in works:
            work.wait()
        if then is not None:
            then()

    natives = [native for work in works for native in work.pending]
    if not natives:
        finish()
    return Work(tensors, natives, None, finish)
