"""Point-to-point messages of a process group, and what is made of them.

A message to oneself is handed over inside the process. ``monitored_barrier`` is made of messages, so that one rank
can tell who is missing without breaking the group's collectives.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor

from farandole import _core
from farandole.errors import CommunicationError, LengthError, TimeLimitError, UnsupportedError, UsageError
from farandole.run.failures import LATE
from farandole.torch.arguments import one
from farandole.torch.channel import Channel
from farandole.torch.profiling import Shown, shown
from farandole.torch.tensors import NAMES, readable, writable
from farandole.torch.work import Describe, Received, Work

_ROLL_CALL = -16  # tags below this are our own; those of PyTorch's users are 0 or more


class Handed:
    """A receive from oneself, in the form of the engine's work: done when the send has come, or the time is up."""

    def __init__(self, rank: int, limit_s: float) -> None:
        self._rank = rank
        self._deadline = time.monotonic() + limit_s
        self._event = threading.Event()
        self._sent: tuple[int, str, bool] = (0, "", True)

    def fill(self, memory: Tensor, sent: Tensor) -> None:
        """What was sent has come."""
        fits = memory.dtype == sent.dtype and memory.numel() == sent.numel()
        if fits:
            memory.detach().view(-1).copy_(sent.detach().view(-1))
        self._sent = (sent.numel() * sent.element_size(), NAMES[sent.dtype], fits)
        self._event.set()

    def done(self) -> bool:
        """As of the engine's."""
        return self._event.is_set() or time.monotonic() >= self._deadline

    def wait(self, timeout_s: float) -> bool:
        """As of the engine's."""
        left_s = max(self._deadline - time.monotonic(), 0)
        return self._event.wait(min(timeout_s, left_s, threading.TIMEOUT_MAX)) or self.done()

    def verdict(self) -> tuple[int, int]:
        """As of the engine's."""
        return (0, -1) if self._event.is_set() else (LATE, self._rank)

    def message(self) -> tuple[int, int, str, bool]:
        """As of the engine's."""
        return (self._rank, *self._sent)


class Messages(Shown):
    """The part of the process group that sends and receives; ``_channel`` carries it out."""

    _channel: Channel
    _rank: int
    _size: int

    def __init__(self) -> None:
        self._to_myself: defaultdict[int, deque[Tensor]] = defaultdict(deque)
        self._from_myself: defaultdict[int, deque[tuple[Handed, Tensor]]] = defaultdict(deque)
        self._roll_calls = 0

    def _elsewhere(self, tensor: Tensor) -> Messages:
        """The group for tensors of another device, which has the same methods."""
        raise NotImplementedError

    @shown("send", 0)
    def send(self, tensors: Tensor | Sequence[Tensor], dst: int, tag: int) -> Work:
        """Send a tensor to one rank; done when the tensor may be used again."""
        tensor = one(tensors, "send")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).send([tensor], dst, tag)
        memory = readable(tensor)
        if self._peer(dst) == self._rank:
            return self._send_to_myself(tensor, memory, tag)
        native, describe = self._channel.message(memory, dst, tag, receives=False)
        return Work([tensor], (native,), describe)

    @shown("recv", 0)
    def recv(self, tensors: Tensor | Sequence[Tensor], src: int, tag: int) -> Work:
        """Fill a tensor with what a rank sends with that tag."""
        tensor = one(tensors, "recv")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).recv([tensor], src, tag)
        return self._receive(tensor, self._peer(src), tag)

    @shown("recvAnySource", 0)
    def recv_anysource(self, tensors: Tensor | Sequence[Tensor], tag: int) -> Work:
        """Fill a tensor with what any other rank sends with that tag."""
        tensor = one(tensors, "recv")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).recv_anysource([tensor], tag)
        return self._receive(tensor, _core.ANY_RANK, tag)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return when every rank has come; else every rank that came learns who did not.

        Raises TimeLimitError, on rank 0 after ``timeout``; with ``wait_all_ranks`` it names all that did not come.
        """
        limit_s = self._channel.timeout_s if timeout is None else timeout.total_seconds()
        self._roll_calls += 1
        tag = _ROLL_CALL - 2 * self._roll_calls
        if self._size == 1:
            return
        missing = torch.zeros(self._size, dtype=torch.uint8)
        if self._rank == 0:
            self._call_the_roll(missing, tag, limit_s, wait_all_ranks=wait_all_ranks)
        else:
            here, describe = self._channel.message(missing, 0, tag, receives=False, timeout_s=limit_s)
            Work([], (here,), describe).wait()
            # Rank 0 answers after its own time, which begins when it comes.
            answer, describe = self._channel.message(missing, 0, tag - 1, receives=True, timeout_s=2 * limit_s + 1)
            Work([], (answer,), describe).wait()
        ranks = [int(rank) for rank in missing.nonzero()]
        if ranks:
            raise TimeLimitError(self._roll_call_failed(ranks, limit_s), missing=ranks, timeout_s=limit_s)

    def _roll_call_failed(self, missing: Sequence[int], limit_s: float) -> str:
        """The words are those of PyTorch, which people search their logs for."""
        who = f"Rank{'' if len(missing) == 1 else 's'} {', '.join(map(str, missing))}"
        failed = f"{who} failed to pass monitoredBarrier in {limit_s * 1000:.0f} ms"
        if self._rank:
            return (
                f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for"
                f" send/recv from rank 0: {failed}"
            )
        return failed if limit_s > 0 else f"Rank 0 timed out in monitoredBarrier after 0 ms; {failed}"

    def _call_the_roll(self, missing: Tensor, tag: int, limit_s: float, *, wait_all_ranks: bool) -> None:
        """Find out who is here, write it into ``missing``, and tell those who are."""
        deadline = time.monotonic() + limit_s
        others = range(1, self._size)
        room = torch.empty(self._size, self._size, dtype=torch.uint8)
        calls = [self._channel.message(room[r], r, tag, receives=True, timeout_s=limit_s)[0] for r in others]
        for rank, call in zip(others, calls, strict=True):
            came = call.wait(max(deadline - time.monotonic(), 0.001)) and call.verdict()[0] == 0
            missing[rank] = not came
            if not came and not wait_all_ranks:
                break
        for rank, call in zip(others, calls, strict=True):
            if call.done() and call.verdict()[0] == 0:
                answer, _ = self._channel.message(missing, rank, tag - 1, receives=False, timeout_s=limit_s)
                answer.wait(limit_s)

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self._size:
            raise UsageError(f"there are the group's ranks 0 to {self._size - 1}, not {rank}", got=rank)
        return rank

    def _receive(self, tensor: Tensor, peer: int, tag: int) -> Work:
        memory, put_back = writable(tensor)
        if peer == self._rank:
            native: Any = self._receive_from_myself(memory, tag)
            describe: Describe = partial(self._not_sent, tag)
        else:
            native, describe = self._channel.message(memory, peer, tag, receives=True)

        def finish() -> None:
            self._check_fit(tensor, tag, *native.message())
            if put_back is not None:
                put_back()

        return Received([tensor], (native,), describe, finish)

    def _check_fit(self, tensor: Tensor, tag: int, sender: int, size_bytes: int, dtype: str, fits: bool) -> None:
        if fits:
            return
        mine, name = tensor.numel() * tensor.element_size(), NAMES[tensor.dtype]
        facts = {"rank": self._rank, "peer": sender, "tag": tag}
        where = f"rank {self._rank}, receive from rank {sender}, tag {tag}:"
        if dtype != name:
            raise UnsupportedError(
                f"{where} the tensor is of dtype {name}, but {dtype} was sent", expected=name, got=dtype, **facts
            )
        raise LengthError(
            f"{where} the tensor has {mine} bytes, but {size_bytes} were sent; it must have the length of what is sent",
            expected=mine,
            got=size_bytes,
            **facts,
        )

    def _send_to_myself(self, tensor: Tensor, memory: Tensor, tag: int) -> Work:
        waiting = self._from_myself[tag]
        while waiting and waiting[0][0].done():  # in vain
            waiting.popleft()
        if waiting:
            handed, room = waiting.popleft()
            handed.fill(room, memory)
        else:
            self._to_myself[tag].append(memory.detach().clone())
        return Work([tensor])

    def _receive_from_myself(self, memory: Tensor, tag: int) -> Handed:
        handed = Handed(self._rank, self._channel.timeout_s)
        if self._to_myself[tag]:
            handed.fill(memory, self._to_myself[tag].popleft())
        else:
            self._from_myself[tag].append((handed, memory))
        return handed

    def _not_sent(self, tag: int, _failure: int, _peer: int) -> CommunicationError:
        limit_s = self._channel.timeout_s
        return TimeLimitError(
            f"rank {self._rank}, receive from rank {self._rank}, tag {tag}: this rank has sent itself nothing within"
            f" {limit_s:g} s",
            rank=self._rank,
            peer=self._rank,
            tag=tag,
            timeout_s=limit_s,
        )
