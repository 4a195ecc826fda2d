"""Point-to-point messages on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farandole import _core
from farandole.errors import CommunicationError, LengthError, UnsupportedError, UsageError
from farandole.run.arrays import Array, check_array
from farandole.run.engine import Engine
from farandole.run.executor import Executor
from farandole.run.work import Work


def send(executor: Executor, array: Array, to: int, tag: int, timeout_s: float | None, *, waits: bool) -> Work[None]:
    """Send an array to one rank."""
    engine = _engine(executor, to, "send to")
    memory = np.ascontiguousarray(check_array(array, "array"))
    limit_s = executor.timeout_s if timeout_s is None else timeout_s
    work = engine.message(receives=False, array=memory, peer=to, tag=tag, timeout_s=limit_s, waits=waits)
    return Work(work, lambda: None, _errors(engine, limit_s, f"send to rank {to}, tag {tag}"))


def receive(
    executor: Executor, array: Array, source: int | None, tag: int, timeout_s: float | None, *, waits: bool
) -> Work[int]:
    """Receive an array from one rank, or from any; the result is the sender."""
    engine = _engine(executor, source, "receive from")
    target = check_array(array, "array")
    if not target.flags.writeable:
        raise UsageError("receive: the array is read-only")
    memory = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
    limit_s = executor.timeout_s if timeout_s is None else timeout_s
    peer = _core.ANY_RANK if source is None else source
    work = engine.message(receives=True, array=memory, peer=peer, tag=tag, timeout_s=limit_s, waits=waits)
    whom = "any rank" if source is None else f"rank {source}"

    def result() -> int:
        sender, size_bytes, dtype, fits = work.message()
        facts = {"rank": executor.place.rank, "peer": sender, "tag": tag}
        if not fits and dtype != target.dtype.name:
            raise UnsupportedError(
                f"rank {facts['rank']} receives {target.dtype} from rank {sender}, tag {tag}, which sent {dtype}",
                expected=target.dtype.name, got=dtype, **facts,
            )  # fmt: skip
        if not fits:
            raise LengthError(
                f"rank {facts['rank']} receives {target.nbytes} bytes from rank {sender}, tag {tag}, which sent"
                f" {size_bytes}; the array must have the length of what is sent",
                expected=target.nbytes, got=size_bytes, **facts,
            )  # fmt: skip
        if memory is not target:
            target[...] = memory
        return sender

    return Work(work, result, _errors(engine, limit_s, f"receive from {whom}, tag {tag}"))


def _engine(executor: Executor, peer: int | None, what: str) -> Engine:
    rank, size = executor.place.rank, executor.place.size
    if peer is not None and not 0 <= peer < size:
        raise UsageError(f"{what} one of the ranks 0 to {size - 1}, not {peer}", got=peer)
    if peer == rank or executor.engine is None:
        raise UsageError(f"rank {rank} cannot {what} itself; copy the array instead", rank=rank)
    return executor.engine


def _errors(engine: Engine, limit_s: float, what: str) -> Callable[[int, int], CommunicationError]:
    return lambda failure, peer: engine.error(failure, peer, limit_s, what)
