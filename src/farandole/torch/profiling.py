"""Events for PyTorch's profiler: ``farandole:all_reduce`` and so on, each with the shapes of what was passed.

The rules:

- An event begins where the call is made and ends when its result is there, in the background or not. PyTorch tells
  such events from those of its operators by the thread on which they end, so that is never the caller's.
- Whoever has waited for the call finds its event complete.
- A call that is made of others is one event.
- While no profiler runs, all this costs one look at a variable.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd import profiler

from farandole import _core
from farandole.torch.completions import THREADS
from farandole.torch.work import Work

P = ParamSpec("P")
Self = TypeVar("Self", bound="Shown")
Method = Callable[Concatenate[Self, P], Work]

_FOREVER_S = 1e9
_autograd: Any = torch.autograd
_operators: Any = torch.ops.profiler


class Shown:
    """What has methods that are events."""

    title = "farandole"  # before the colon
    _is_shown = False


def is_on() -> bool:
    """Whether a profiler records."""
    return profiler._is_profiler_enabled  # noqa: SLF001


def shown(what: str, which: int) -> Callable[[Method[Self, P]], Method[Self, P]]:
    """Make a method an event; argument number ``which`` is what goes into it."""

    def decorate(method: Method[Self, P]) -> Method[Self, P]:
        @functools.wraps(method)
        def call(self: Self, *arguments: P.args, **named: P.kwargs) -> Work:
            if not profiler._is_profiler_enabled or self._is_shown:  # noqa: SLF001
                return method(self, *arguments, **named)
            given = arguments[which] if which < len(arguments) else ()
            event = Event(f"{self.title}:{what}", list(_flat(given)))
            natives: Sequence[_core.Work] = ()
            self._is_shown = True
            try:
                work = method(self, *arguments, **named)
                natives, work.event = work.pending, event
            finally:
                self._is_shown = False
                event.end_after(natives)
            return work

        return cast("Method[Self, P]", call)

    return decorate


class Event:
    """One call of a group, as the profiler shows it."""

    def __init__(self, name: str, tensors: Sequence[Tensor]) -> None:
        """The event begins now."""
        record = _autograd._record_function_with_args_enter(name, *tensors)  # noqa: SLF001
        self._future: Any = torch.futures.Future()
        # What is chained to the future in this way runs with the profiler of this thread, wherever it ends.
        _operators._call_end_callbacks_on_jit_fut._RecordFunction(record, self._future)  # noqa: SLF001
        self._has_ended = threading.Event()

    def end_after(self, natives: Sequence[_core.Work]) -> None:
        """The event ends when all of these are done; at once, if there are none."""

        def end() -> None:
            for native in natives:
                native.wait(_FOREVER_S)
            self._future.set_result(None)
            self._has_ended.set()

        THREADS.start(end)
        if not natives:
            self.wait()

    def wait(self) -> None:
        """Return when the profiler knows the end."""
        self._has_ended.wait()


def _flat(given: Any) -> Sequence[Tensor]:
    if isinstance(given, Tensor):
        return [given]
    return [tensor for part in given for tensor in _flat(part)] if isinstance(given, (list, tuple)) else []
