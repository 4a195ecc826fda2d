"""The native engine: runs compiled schedules over memory that processes share."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ANY_RANK: int
FAR_NS: int
RECORD_BYTES: int
FLIGHT_BYTES: int
SEGMENT_MAGIC: int
SEGMENT_VERSION: int

def segment_bytes(ranks: int, slot_bytes: int) -> int: ...
def segment_offsets(ranks: int, slot_bytes: int) -> list[int]: ...
def flight_clock() -> tuple[bool, int, int]: ...
def instruction_set() -> str: ...
def clock_steps(count: int) -> list[int]: ...
def partial_itemsize(dtype: str, itemsize: int) -> int: ...

class Failed(Exception): ...  # noqa: N818  # its arguments: failure, peer, timeout in seconds
class Plan: ...

class Work:
    def done(self) -> bool: ...
    def verdict(self) -> tuple[int, int]: ...
    def wait(self, timeout_s: float) -> bool: ...
    def message(self) -> tuple[int, int, str, bool]: ...

class Runner:
    def __init__(
        self,
        fd: int,
        rank: int,
        ranks: int,
        slot_bytes: int,
        process_fds: Sequence[int],
        foreground: tuple[int, int, int],
        background: tuple[int, int, int],
        batch: int,
        far: bool | None = None,
        crowded: bool = False,
    ) -> None: ...
    def plan(
        self,
        stages: bytes,
        steps: bytes,
        operands: bytes,
        waits: bytes,
        slices: int,
        stride: int,
        itemsize: int,
        dtype: str,
        op: str,
        divisor: int,
        peer_stride: int,
        streams: bool,
        set_bytes: int,
        fingerprint: int,
        text: str,
        size_bytes: int = 0,
    ) -> Plan: ...
    def run(self, plan: Plan, input: int, output: int, timeout_s: float) -> tuple[int, int]: ...
    def run_traced(self, plan: Plan, input: int, output: int, timeout_s: float) -> tuple[tuple[int, int], bytes]: ...
    def records(self, plan: Plan) -> int: ...
    def remember(
        self,
        name: object,
        algorithm: object,
        more: tuple[Hashable, ...],
        source: NDArray[Any] | None,
        target: NDArray[Any] | None,
        plan: Plan,
        reads: bool,
        result_dtype: np.dtype[Any] | None,
        result_shape: Sequence[int],
        timeout_s: float,
        last_algorithm: str,
    ) -> None: ...
    def forget(self) -> None: ...
    def repeat(
        self,
        name: object,
        algorithm: object,
        more: tuple[Hashable, ...],
        source: NDArray[Any] | None,
        target: NDArray[Any] | None,
        timeout_s: float | None,
    ) -> Any: ...
    last_algorithm: str
    def submit(
        self, plan: Plan, input: int, output: int, timeout_s: float, conclude: Callable[[], None] | None
    ) -> Work: ...
    def message(
        self,
        receives: bool,
        address: int,
        bytes: int,
        dtype: str,
        peer: int,
        tag: int,
        timeout_s: float,
        waits: bool,
        conclude: Callable[[], None] | None,
    ) -> Work: ...
    def states(self) -> list[tuple[int, int, str]]: ...
    def ending(self, rank: int) -> str: ...
    def left(self, rank: int) -> int: ...
    def control(self) -> bytes: ...
    def close(self, limit_s: float, how: int = 1, ending: str = "") -> None: ...
    def broken(self) -> tuple[int, int, int]: ...
    def distances_ns(self) -> list[int]: ...
    def writes_past_caches(self) -> bool: ...
    @property
    def call(self) -> int: ...
    @property
    def set_bytes(self) -> int: ...
