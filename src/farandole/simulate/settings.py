"""What a simulation is told beside the schedule and the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UsageError


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds.

    ``startup_s`` is what a rank pays for each message, ``delays`` says by how much ranks begin late, and
    ``jitter_s`` is the mean of an extra start-up cost that is drawn for each message (exponentially, from
    ``seed``). The buffer is cut into ``slices``, of which at most ``in_flight`` are under way at a rank (0: all).
    With ``rendezvous`` a message sets out only when its receiver has begun the round too, as libraries do that keep
    nothing for a receiver that is not there yet (Gloo).
    """

    startup_s: float = 0.0
    delays: Mapping[int, float] = field(default_factory=dict)
    jitter_s: float = 0.0
    seed: int = 0
    slices: int = 1
    in_flight: int = 0
    rendezvous: bool = False

    def begin(self, ranks: int) -> NDArray[np.float64]:
        """When each rank begins, shape (ranks,)."""
        begin = np.zeros(ranks)
        for rank, delay in self.delays.items():
            if not 0 <= rank < ranks:
                raise UsageError(f"rank {rank} cannot be late: there are the ranks 0 to {ranks - 1}", got=rank)
            if delay < 0:
                raise UsageError(f"rank {rank} cannot begin {delay} s late: a delay is at least 0", got=delay)
            begin[rank] = delay
        return begin

    def check(self) -> None:
        """Raise UsageError for values that cannot be."""
        if self.slices < 1:
            raise UsageError(f"the number of slices is at least 1, not {self.slices}", got=self.slices)
        if self.in_flight < 0 or self.jitter_s < 0 or self.startup_s < 0:
            raise UsageError("in_flight, jitter and start-up cost are at least 0", got=self)


def jitter(settings: Settings, round_: int, slice_: int, messages: int) -> NDArray[np.float64]:
    """The extra start-up costs of a round's messages, in the order in which they are listed."""
    return np.random.default_rng([settings.seed, slice_, round_]).exponential(settings.jitter_s, messages)
