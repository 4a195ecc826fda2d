"""Many equal rounds of a ring in one go, where every rank waits for what it receives.

In a round in which every rank sends one message and receives one, all equally long to send, and no link carries two,
a rank begins the next round when its message has arrived, or when its own has left, whichever is later. If at one
time every rank waits for the message to arrive, it does so in all rounds that follow: then a round only moves the
times one rank on and adds the latency of the link, and k rounds move them k ranks on and add k latencies. Such sums
over k ranks are found by doubling. So no round is gone through one by one even where latencies differ, so that no
two rounds of a rank take equally long.
"""

from __future__ import annotations

import numpy as np

from farandole.simulate.pattern import Floats, Network, Pattern
from farandole.simulate.settings import Settings

NEAR = 1e-12


def jump(net: Network, pattern: Pattern, begin: Floats, settings: Settings, rounds: int) -> Floats | None:
    """When each rank begins its next round after ``rounds`` like ``pattern``, or None where that cannot be said."""
    in_turn = pattern.apart and pattern.one_each and pattern.one_in_each and settings.jitter_s == 0.0
    if not in_turn or settings.rendezvous or len(pattern.involved) != len(pattern):
        return None
    reduce_s = net.cluster.reduce_s_per_byte * pattern.reduced
    away_s = settings.startup_s + pattern.size / pattern.limit
    waits = begin[pattern.src] + pattern.latency_s >= begin[pattern.dst] - NEAR * begin.max()
    if not waits.all() or np.ptp(away_s) > NEAR * away_s.max() or np.ptp(reduce_s) > NEAR * reduce_s.max():
        return None
    one_from = np.arange(len(begin))
    one_later = np.zeros(len(begin))
    one_from[pattern.dst] = pattern.src
    one_later[pattern.dst] = away_s + pattern.latency_s + reduce_s
    origin, later = np.arange(len(begin)), np.zeros(len(begin))
    while rounds:
        if rounds & 1:
            origin, later = origin[one_from], later[one_from] + one_later
        one_from, one_later = one_from[one_from], one_later[one_from] + one_later
        rounds >>= 1
    return np.asarray(begin[origin] + later, np.float64)
