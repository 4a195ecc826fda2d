"""Long routes on a torus, told by where they begin and how far they go, for worlds where no list of them fits.

Along a side, a transfer crosses neighbouring links of one line. So with the links numbered line by line a route is
one stretch of numbers for each side (two, where it passes the end of the line), however long it is; and what a
stretch carries, or what is greatest on it, is found without going through it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.cluster.routing import Torus

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """The links of a torus, line by line: ``link`` (shape (places,)) is the link at each place.

    ``first`` has the place at which the links of each side and direction begin: forward, backward.
    """

    router: Torus
    link: Ints
    first: tuple[tuple[int, int], ...]

    def arcs(self, src: Ints, dst: Ints) -> Arcs:
        """The ways from ``src`` to ``dst``, shape (m,) both; the same as those of the router."""
        here = src.astype(np.int64)
        starts: list[Longs] = []
        lengths: list[Longs] = []
        stride = 1
        for side, (forward, backward) in zip(self.router.sides, self.first, strict=True):
            place = here // stride % side
            ahead = (dst // stride - place) % side
            upwards = ahead <= side - ahead
            hops = np.where(upwards, ahead, side - ahead)
            line = (here // (stride * side) * stride + here % stride) * side + np.where(upwards, forward, backward)
            begin = np.where(upwards, place, (place - hops + 1) % side)
            inside = np.minimum(hops, side - begin)
            starts += [line + begin, line]
            lengths += [inside, hops - inside]
            here = here + ((place + np.where(upwards, hops, -hops)) % side - place) * stride
            stride *= side
        return Arcs(self.link, np.stack(starts, axis=1), np.stack(lengths, axis=1))


def lines(router: Torus) -> Lines:
    """Number the links of a torus line by line."""
    links: list[Ints] = []
    first: list[tuple[int, int]] = []
    count, stride, ranks = 0, 1, len(router.forward[0])
    for side, forward, backward in zip(router.sides, router.forward, router.backward, strict=True):
        order = np.arange(ranks).reshape(-1, side, stride).transpose(0, 2, 1).ravel()
        used = [forward, backward] if side > 2 else [forward]  # two ranks in a line: never backward
        first.append((count, count + ranks))
        links += [ways[order] for ways in used]
        count += len(used) * ranks
        stride *= side
    return Lines(router, np.concatenate(links), tuple(first))


class Arcs:
    """Routes as stretches of places: ``start`` and ``length`` have shape (m, stretches); a length may be 0."""

    def __init__(self, link: Ints, start: Longs, length: Longs) -> None:
        self.link, self.start, self.length = link, start, length
        self._groups: list[list[tuple[NDArray[np.intp], Longs, Longs]]] = []

    def __len__(self) -> int:
        return len(self.start)

    @property
    def hops(self) -> int:
        """How many links all routes cross together."""
        return int(self.length.sum())

    @property
    def longest(self) -> int:
        """How many links the longest stretch has."""
        return int(self.length.max(initial=0))

    def load(self, weight: Floats) -> Floats:
        """The sum of the weights of the routes that cross each place, shape (places,)."""
        steps = np.zeros(len(self.link) + 1)
        for start, length in zip(self.start.T, self.length.T, strict=True):
            steps += np.bincount(start, weight, len(steps))
            steps -= np.bincount(start + length, weight, len(steps))
        return np.cumsum(steps)[:-1]

    def users(self) -> Longs:
        """How many routes cross each place."""
        places = len(self.link) + 1
        begun, ended = (np.bincount(at.ravel(), minlength=places) for at in (self.start, self.start + self.length))
        return np.asarray(np.cumsum(begun - ended)[:-1], np.int64)

    def total(self, values: Floats) -> Floats:
        """The sum of the places' values along each route, shape (m,)."""
        before = np.concatenate([[0.0], np.cumsum(values)])
        return np.asarray((before[self.start + self.length] - before[self.start]).sum(axis=1), np.float64)

    def greatest(self, values: Floats) -> Floats:
        """The greatest of the places' values along each route, shape (m,); minus infinity for one without links."""
        best = np.full(len(self), -np.inf)
        row = values  # the greatest of ``width`` places from each on
        for power, groups in enumerate(self._by_width()):
            if power:
                width = 1 << (power - 1)
                row = np.maximum(row[:-width], row[width:])
            for rows, head, tail in groups:
                most = row[head] if not power else np.maximum(row[head], row[tail])
                best[rows] = np.maximum(best[rows], most)
        return best

    def raised(self, values: Floats, to: Floats) -> Floats:
        """The places' values, raised to at least the greatest of ``to`` (shape (m,)) of the routes that cross each."""
        above = np.full(len(values), -np.inf)
        by_width = self._by_width()
        for power in reversed(range(len(by_width))):
            for rows, head, tail in by_width[power]:
                np.maximum.at(above, head, to[rows])
                if power:  # otherwise the tail is the head
                    np.maximum.at(above, tail, to[rows])
            if power:  # what holds for so many places holds for both halves
                half = 1 << (power - 1)
                above[half:] = np.maximum(above[half:], above[:-half].copy())
        reached: Floats = np.maximum(values, above)
        return reached

    def _by_width(self) -> list[list[tuple[NDArray[np.intp], Longs, Longs]]]:
        """By power of two: the routes with a stretch of at least so many places and less than twice as many.

        Two runs of exactly so many places cover such a stretch; ``head`` and ``tail`` are where they begin.
        """
        if not self._groups:
            for power in range(max(int(self.length.max(initial=1)).bit_length(), 1)):
                width = 1 << power
                groups = []
                for start, length in zip(self.start.T, self.length.T, strict=True):
                    rows = np.flatnonzero((length >= width) & (length < 2 * width))
                    if len(rows):
                        groups.append((rows, start[rows], start[rows] + length[rows] - width))
                self._groups.append(groups)
        return self._groups
