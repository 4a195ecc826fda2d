"""Worlds that look the same from every so many ranks on, folded: the first few ranks stand for all.

Moving every rank ``period`` places on (around the end) is a *symmetry* if the links and routes move with the ranks
and every round asks the same of the ranks moved. Where all begin at the same time, nothing then tells a rank from
the one a period on: the fluid model has only one solution, so in it they do the same at the same times. It is
enough to go through the messages of the first ``period`` ranks. Links that come to lie on each other are one; a
message that crosses several of those counts on it several times, since as many others cross each of them.

Nothing is lost by that: the times are the same, for any number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.cluster.model import Cluster
from farandole.cluster.routing import Mesh, Torus
from farandole.schedule import Round

LARGEST = 1 << 23  # links on the routes of a round, each route taken to be as long as the longest

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """The first ``period`` ranks stand for all; ``link`` (shape (links,)) is what each link is folded to."""

    period: int
    link: Longs

    def once(self, values: Floats) -> Floats:
        """The value of one link of each that lie on each other, which is that of all."""
        return np.asarray(values[np.unique(self.link, return_index=True)[1]], np.float64)


def fold(cluster: Cluster, period: int) -> Fold:
    """Which links come to lie on each other when every rank moves ``period`` places, a multiple of the cluster's.

    The links of a kind are numbered along the ranks, so they move on by as much of their number as the ranks do.
    Those of a full mesh go by where they begin and how far they lead.
    """
    if isinstance(cluster.router, Mesh):
        far = (cluster.link_dst - cluster.link_src) % cluster.ranks - 1
        return Fold(period, np.asarray(cluster.link_src % period * (cluster.ranks - 1) + far, np.int64))
    kinds = np.bincount(cluster.link_kind)
    begins = np.cumsum(kinds) - kinds
    different = np.maximum(kinds * period // cluster.ranks, 1)
    starts = np.cumsum(different) - different
    place = np.arange(cluster.link_count) - begins[cluster.link_kind]
    return Fold(period, np.asarray(starts[cluster.link_kind] + place % different[cluster.link_kind], np.int64))


def folding(cluster: Cluster, rounds: Sequence[Round]) -> Fold | None:
    """How the cluster folds where all begin together and do these rounds, or None where that saves nothing."""
    period = symmetry(cluster, rounds)
    if period > cluster.ranks // 2 or any(period * _width(cluster, round_, period) > LARGEST for round_ in rounds):
        return None
    return fold(cluster, period)


def _width(cluster: Cluster, round_: Round, period: int) -> int:
    """How many links lie on the longest routes of the first ranks' transfers, at most."""
    if not isinstance(cluster.router, Torus):
        return 1  # elsewhere they are a few
    first = round_.src < period
    counts = cluster.router.hops(round_.src[first], round_.dst[first])
    return int(sum(int(hops.max(initial=0)) for _, hops in counts))


def symmetry(cluster: Cluster, rounds: Sequence[Round]) -> int:
    """The least period with which the cluster and all the rounds look the same; all ranks, if there is none less."""
    n = cluster.ranks
    if not cluster.period or n % cluster.period:
        return n
    return math.lcm(*(_period(round_, n, cluster.period) for round_ in rounds), cluster.period)


def _period(round_: Round, n: int, least: int) -> int:
    """The least period of a round of ``n`` ranks that is a multiple of ``least``."""
    ahead = (round_.dst.astype(np.int64) - round_.src) % n
    order = np.lexsort((round_.reduce, round_.count, ahead, round_.src))
    columns = [column[order] for column in (round_.src, ahead, round_.count, round_.reduce)]
    src, *rest = columns
    for period in range(least, n // 2 + 1, least):
        step, left = divmod(len(src) * period, n)  # the transfers of one period's ranks
        if n % period or left or not step:
            continue
        if np.array_equal(src[step:], src[:-step] + period) and all(
            np.array_equal(column[step:], column[:-step]) for column in rest
        ):
            return period
    return n
