"""Calls like one that was made before: what has been looked into once is not looked into again.

A program makes the same few calls over and over: a sum, say, of as many numbers of the same dtype. The first of them
goes the thorough way, and is remembered by dtype and lengths. Those that follow need only a look at what may have
changed: that the tensors are dense, lie on the CPU in one piece each, and that nothing special is asked.

Each look costs 0.1 to 0.5 us, as much as the engine needs for 8 bytes; so there are few, and as few functions. The
hash of an op is its number, which tells what it is at half the price of a comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from sys import getrefcount
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import profiler

from farandole.run.engine import Planned
from farandole.run.shared import SHARED_FROM_BYTES
from farandole.torch.channel import LOG, Channel
from farandole.torch.work import Work

_UNSET: timedelta = dist.AllreduceOptions().timeout
_DEBUG = logging.DEBUG


def _hashes() -> dict[str, Any]:
    """The hashes by which the ops that are used over and over are known; none if these do not tell ops apart."""
    kinds: Any = dist.ReduceOp.RedOpType
    plain = [kind for kind in kinds.__members__.values() if kind != kinds.PREMUL_SUM]
    found = [[hash(dist.ReduceOp(kind)) for kind in plain] for _ in range(2)]
    scaled = {hash(dist._make_nccl_premul_sum(factor)) for factor in (1.0, 2.0)}  # noqa: SLF001
    if found[0] != found[1] or len(set(found[0])) < len(plain) or scaled & set(found[0]):
        return {}
    return {"sum": hash(dist.ReduceOp(kinds.SUM)), "avg": hash(dist.ReduceOp(kinds.AVG)), "": ""}


_HASHES = _hashes()


class Done(Work):
    """A call on one tensor that is done. It keeps nobody's tensor alive, and may serve another call later."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = ref(tensor)
        super().__init__(())

    def reuse(self, tensor: Tensor) -> Done:
        """Be the work of another call."""
        self._tensor = ref(tensor)
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
        done = self._done = Done(torch.empty(0))
        self._unshared = getrefcount(done)  # by this name and that

    def learn(self, what: str, op: str, source: Tensor, target: Tensor, work: Work) -> None:
        """The channel has carried out ``what`` on plain memory; ``op`` is empty if it reduces nothing."""
        # A complex tensor might be conjugated, another time.
        if work.found is None or op not in _HASHES or source.is_complex():
            return
        if not (self._channel.shared.known and self._may_be_shared(source, target)):
            self._channel.remember((what, _HASHES[op], source.dtype, source.numel(), target.numel()), work.found)

    def in_place(self, what: str, tensors: Tensor | Sequence[Tensor], opts: Any) -> Work | None:
        """A reduction of one tensor of each rank, carried out or begun if it is one that is known; else None."""
        if type(tensors) is not list or len(tensors) != 1 or profiler._is_profiler_enabled or LOG.isEnabledFor(_DEBUG):  # noqa: SLF001
            return None
        (tensor,) = tensors
        channel = self._channel
        try:
            count = tensor.numel()
            known = channel.known.get((what, hash(opts.reduceOp), tensor.dtype, count, count))
            if known is None or opts.timeout != _UNSET:
                return None
            if not tensor.is_cpu or not tensor.is_contiguous() or tensor.is_neg():
                return None
            at = tensor.data_ptr()
        except (AttributeError, RuntimeError):  # an op instead of options, say; a tensor that lies nowhere
            return None
        if not at or (channel.shared.known and self._may_be_shared(tensor, tensor)):
            return None
        return self._repeat(known, at, at, tensor, tensor, opts)

    def from_to(self, what: str, source: Tensor, target: Tensor, opts: Any, *, reduces: bool = False) -> Work | None:
        """A collective from one tensor to another, as ``in_place``."""
        if source.dtype is not target.dtype or profiler._is_profiler_enabled or LOG.isEnabledFor(_DEBUG):  # noqa: SLF001
            return None
        channel = self._channel
        try:
            op = hash(opts.reduceOp) if reduces else ""
            known = channel.known.get((what, op, source.dtype, source.numel(), target.numel()))
            if known is None or known[0] is None or opts.timeout != _UNSET:
                return None
            if not (source.is_cpu and source.is_contiguous() and target.is_cpu and target.is_contiguous()):
                return None
            if source.is_neg() or target.is_neg():
                return None
            first, second = source.data_ptr(), target.data_ptr()
        except (AttributeError, RuntimeError):
            return None
        if not first or not second or (channel.shared.known and self._may_be_shared(source, target)):
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
            engine: Any = channel.engine  # nothing is known any more once it has gone
            if opts.asyncOp:
                return channel.start(engine, planned, at, to, channel.timeout_s, (source, target), [target])
            engine.run(planned, at, to, channel.timeout_s)
        # The work of a call that is done serves the next one, if nobody has kept it.
        done = self._done
        if getrefcount(done) != self._unshared:
            done = self._done = Done(target)
        return done.reuse(target)
