"""Calls like one that was made before: what has been looked into once is not looked into again.

A program makes the same few calls over and over: a sum, say, of as many numbers of the same dtype. The first of them
goes the thorough way, and is remembered by dtype and lengths. Those that follow need only a look at what may have
changed: that the tensors are dense, lie on the CPU in one piece each, and that nothing special is asked.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import profiler

from farandole.run.engine import Engine, Planned
from farandole.run.shared import SHARED_FROM_BYTES
from farandole.torch.channel import LOG, Channel
from farandole.torch.work import Work

_SUM: Any = dist.ReduceOp.SUM
_AVG: Any = dist.ReduceOp.AVG
_UNSET: timedelta = dist.AllreduceOptions().timeout


class Done(Work):
    """A call on one tensor that is done. It keeps nobody's tensor alive, and may serve another call later."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        super().__init__(())

    def reuse(self, tensor: Tensor) -> Done:
        """Be the work of another call."""
        self._tensor = weakref.ref(tensor)
        self._future = None
        return self

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The tensor, as long as anybody has it."""
        tensor = self._tensor()
        return () if tensor is None else [tensor]

    @tensors.setter
    def tensors(self, tensors: Sequence[Tensor]) -> None:
        pass


class Repeats:
    """The calls of a group that can be made again in short."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._done = Done(torch.empty(0))
        self._unshared = sys.getrefcount(self._done)

    def learn(self, what: str, op: str, source: Tensor, target: Tensor, work: Work) -> None:
        """The channel has carried out ``what`` on plain memory; ``op`` is empty if it reduces nothing."""
        # A complex tensor might be conjugated, another time.
        if work.found is None or op not in {"", "sum", "avg"} or source.is_complex():
            return
        if not (self._channel.shares and self._may_be_shared(source, target)):
            self._channel.remember((what, op, source.dtype, source.numel(), target.numel()), work.found)

    def in_place(self, what: str, tensors: Tensor | Sequence[Tensor], opts: Any) -> Work | None:
        """A reduction of one tensor of each rank, carried out or begun if it is one that is known; else None."""
        if type(tensors) is not list or len(tensors) != 1 or _is_watched():
            return None
        tensor = tensors[0]
        count = tensor.numel()
        op = _op(opts)
        known = self._channel.known.get((what, op, tensor.dtype, count, count))
        if known is None or opts.timeout != _UNSET:
            return None
        if self._channel.shares and self._may_be_shared(tensor, tensor):
            return None
        at = _address(tensor)
        return None if at is None else self._repeat(known, at, at, tensor, tensor, opts)

    def from_to(self, what: str, source: Tensor, target: Tensor, opts: Any, *, reduces: bool = False) -> Work | None:
        """A collective from one tensor to another, as ``in_place``."""
        if source.dtype is not target.dtype or _is_watched():
            return None
        op = _op(opts) if reduces else ""
        known = self._channel.known.get((what, op, source.dtype, source.numel(), target.numel()))
        if known is None or known[0] is None or getattr(opts, "timeout", None) != _UNSET:
            return None
        if self._channel.shares and self._may_be_shared(source, target):
            return None
        first, second = _address(source), _address(target)
        if first is None or second is None:
            return None
        if first < second + known[0].output_bytes and second < first + known[0].input_bytes:
            return None
        return self._repeat(known, first, second, source, target, opts)

    def _may_be_shared(self, source: Tensor, target: Tensor) -> bool:
        """Whether a call is so long that it matters where its tensors lie."""
        return max(source.nbytes, target.nbytes) * self._channel.size >= SHARED_FROM_BYTES

    def _repeat(
        self, known: tuple[Planned | None, str], at: int, to: int, source: Tensor, target: Tensor, opts: Any
    ) -> Work:
        channel = self._channel
        planned, channel.last_algorithm = known
        if planned is not None:
            # Nothing is known any more once the engine has gone.
            engine = cast("Engine", channel.engine)
            if opts.asyncOp:
                return channel.start(engine, planned, at, to, channel.timeout_s, (source, target), [target])
            engine.run(planned, at, to, channel.timeout_s)
        # The work of a call that is done serves the next one, if nobody has kept it.
        if sys.getrefcount(self._done) != self._unshared:
            self._done = Done(target)
        return self._done.reuse(target)


def _is_watched() -> bool:
    """Whether a profiler or a log wants to see every call."""
    return profiler._is_profiler_enabled or LOG.isEnabledFor(logging.DEBUG)  # noqa: SLF001


def _op(opts: Any) -> str | None:
    """The name of the op, if it is one of those that are used over and over."""
    try:
        given = opts.reduceOp
    except AttributeError:  # these are no options, but an op, say
        return None
    return "sum" if given == _SUM else "avg" if given == _AVG else None


def _address(tensor: Tensor) -> int | None:
    """Where a tensor lies, if it is plain memory."""
    try:
        if tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg():
            return tensor.data_ptr() or None
    except RuntimeError:  # of a tensor that does not lie anywhere: a sparse one, say
        pass
    return None
