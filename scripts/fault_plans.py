"""What happens in a run of the fault campaign, all of which follows from its seed: the calls, and what befalls whom."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from typing import Any

from farandole.algorithms import REGISTRY, build
from farandole.errors import FarandoleError

# What befalls the victim, and the classes of error that the survivors may get. "none" and "stop" are harmless.
KINDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "stop": (),
    "kill": ("PeerLostError",),
    "kill in the meeting": ("RendezvousError", "PeerLostError"),  # the ranks may have met by then
    "exit": ("PeerLostError",),
    # The others shrink, and go on. Whoever shrinks first may be what one hears of that is in a call.
    "kill, then shrink": ("PeerLostError", "ClosedError"),
    "two kills, then shrink": ("PeerLostError", "ClosedError"),
    "exception": ("PeerLostError",),
    # With calls in flight, which may be cut short, or meet other calls.
    "close": ("ClosedError", "MismatchError"),
    # In a call, between two of them, or while ranks meet, after which its process may have ended as well.
    "interrupt": ("CommunicationError", "ClosedError", "RendezvousError", "PeerLostError"),
    # The victim lives on, without the communicator: nobody waits for it.
    "interrupt in the meeting": ("CommunicationError", "ClosedError", "RendezvousError"),
    "stop for too long": ("TimeLimitError",),
    "late": ("TimeLimitError",),
    "another collective": ("MismatchError",),
    "another dtype": ("MismatchError",),
    "another op": ("MismatchError",),
    "another root": ("MismatchError",),
    "another length": ("MismatchError",),
    "another algorithm": ("MismatchError",),
    "one call more": ("MismatchError",),
}
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
COLLECTIVES = (*REDUCING, "broadcast", "gather", "scatter", "all_gather", "all_to_all", "barrier")
# Beside the collectives: messages around the ring, and what is made of a communicator, with a call on it.
OTHERS = ("exchange", "split", "shared")


@dataclass(slots=True)
class Call:
    """One call; ``length`` is the elements of each rank's array (of each part of it, for all_to_all)."""

    collective: str
    algorithm: str
    dtype: str
    op: str
    root: int
    length: int
    is_background: bool

    def changed(self, **parts: Any) -> Call:
        """A copy in which some parts differ."""
        return Call(**{name: parts.get(name, getattr(self, name)) for name in self.__slots__})


@dataclass(slots=True)
class Run:
    """What will happen, all of which follows from the seed."""

    seed: int
    ranks: int
    kind: str
    victim: int
    at: int  # the call at which it befalls the victim, if that is the victim's own doing
    after_s: float  # when it does, after all ranks have met (or have been started), if it is not
    timeout_s: float
    slot_bytes: int
    calls: list[Call]
    second: int = -1  # another one that is killed, so long after the first one
    second_after_s: float = 0.0

    @property
    def doomed(self) -> tuple[int, ...]:
        """The ranks that will be killed while the others shrink and go on."""
        if not self.kind.endswith("then shrink"):
            return ()
        return (self.victim,) if self.second < 0 else (self.victim, self.second)


def plan(seed: int, kinds: list[str]) -> Run:
    """The run of a seed."""
    dice = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    kind = dice.choice(kinds)
    two = kind == "two kills, then shrink"
    ranks = dice.choice((3, 4, 5, 8) if two else (2, 3, 4, 5, 8))
    count = dice.randint(4, 12)
    short = kind in {"late", "stop for too long"}
    run = Run(
        seed,
        ranks,
        kind,
        victim=dice.randrange(ranks),
        at=dice.randrange(count),
        after_s=dice.choice((0.0, 0.002, 0.01, 0.03)) * dice.random() * 2,
        timeout_s=0.6 if short else 20.0,
        slot_bytes=dice.choice((64 << 10, 256 << 10)),
        calls=[_random_call(dice, ranks) for _ in range(count)],
    )
    if kind.startswith("another "):
        run.calls[run.at] = _call_that_can_differ(dice, kind.removeprefix("another "), ranks)
    if two:
        run.second = dice.choice([rank for rank in range(ranks) if rank != run.victim])
        run.second_after_s = dice.choice((0.0, 0.002, 0.02, 0.1)) * dice.random() * 2
    run.calls += [Call("barrier", "auto", "int64", "", 0, 0, False)] * 2  # where a root hears of what it did not need
    return run


def _random_call(dice: random.Random, ranks: int, collective: str = "") -> Call:
    collective = collective or dice.choice((*COLLECTIVES, "all_reduce", *OTHERS))
    names = [name for what, name in REGISTRY if what == collective and _can(collective, name, ranks)]
    return Call(
        collective,
        dice.choice(["auto", *names]),
        dice.choice(("int64", "float32", "float64", "int8")),
        dice.choice(("sum", "max", "min")) if collective in {*REDUCING, "split", "shared"} else "",
        dice.randrange(ranks) if collective in ROOTED else 0,
        0 if collective == "barrier" else dice.choice((0, 1, 5, 1000, 30_000, 200_000)),
        is_background=dice.random() < 0.4,
    )


@functools.cache
def _can(collective: str, name: str, ranks: int) -> bool:
    try:
        build(collective, name, ranks)
    except FarandoleError:
        return False
    return True


def _call_that_can_differ(dice: random.Random, part: str, ranks: int) -> Call:
    collective = {"op": "all_reduce", "algorithm": "all_reduce", "root": dice.choice(ROOTED)}.get(part, "")
    while True:
        call = _random_call(dice, ranks, collective)
        if call.collective not in {"barrier", *OTHERS} and call.length > 0:
            return call.changed(algorithm="ring") if part == "algorithm" else call


def fitting(call: Call, ranks: int) -> Call:
    """A call as fewer ranks can make it."""
    if ranks == 1 and call.collective == "exchange":
        return call.changed(collective="barrier", length=0)
    is_known = call.algorithm == "auto" or _can(call.collective, call.algorithm, ranks)
    return call.changed(root=call.root % ranks, algorithm=call.algorithm if is_known else "auto")


def changed(call: Call, part: str, ranks: int) -> Call:
    """The victim's version of a call."""
    if part == "collective":
        other = "all_gather" if call.collective != "all_gather" else "all_to_all"
        return call.changed(collective=other, algorithm="auto", op="", root=0)
    parts: dict[str, dict[str, Any]] = {
        "dtype": {"dtype": "uint8" if call.dtype == "int8" else "uint32" if call.dtype == "float32" else "uint64"},
        "op": {"op": "min" if call.op == "max" else "max"},
        "root": {"root": (call.root + 1) % ranks},
        "length": {"length": call.length + 1},
        "algorithm": {"algorithm": "naive"},
    }  # fmt: skip
    return call.changed(**parts[part])
