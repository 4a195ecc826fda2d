"""Carries out one rank's part of a schedule with point-to-point calls of torch.distributed.

A rank posts the messages of a round, to the peer next above it first and so on around, and begins the next round
when its own part is done; a message is all that it sends to one peer in the round. These are the rules of the
simulation. Reductions into a chunk keep the schedule's order of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from farandole.collectives import collective
from farandole.lower.messages import Fold, Messages, messages
from farandole.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of chunks in a message: where it begins and ends in the buffer (elements), and what becomes of it."""

    begin: int
    end: int
    reduce: bool
    fold: Fold


@dataclass(frozen=True, slots=True)
class Part:
    """What a rank does in a round: the pieces by peer, sends in the order of posting, receives by ascending rank."""

    sends: list[tuple[int, list[Piece]]]
    receives: list[tuple[int, list[Piece]]]


class Follower:
    """One rank's buffer, and its part in a schedule for ``size_bytes`` of float32."""

    def __init__(self, schedule: Schedule, rank: int, size_bytes: int) -> None:
        self.schedule, self.rank = schedule, rank
        self.chunk = size_bytes // 4 // schedule.chunks
        length = self.chunk * schedule.chunks
        self.buffer = torch.zeros(length)
        self.scratch = torch.zeros(length)
        self.parts = _parts(schedule, rank, self.chunk)
        rooms = [sum(p.end - p.begin for _, pieces in part.receives for p in pieces) for part in self.parts]
        self.room = torch.zeros(max(rooms, default=0))

    def fill(self) -> None:
        """This rank's input where it has one, zeros elsewhere."""
        held = collective(self.schedule.collective).before(self.schedule.ranks, self.schedule.chunks)
        self.buffer.copy_(torch.from_numpy(self._input(self.rank) * np.repeat(held[self.rank], self.chunk)))

    def run(self) -> None:
        """Take part."""
        for part in self.parts:
            place, waits, arrived = 0, [], []
            for peer, pieces in part.receives:
                length = sum(piece.end - piece.begin for piece in pieces)
                waits.append(dist.irecv(self.room[place : place + length], peer))
                for piece in pieces:
                    arrived.append((piece, self.room[place : place + piece.end - piece.begin]))
                    place += piece.end - piece.begin
            for peer, pieces in part.sends:
                waits.append(dist.isend(self._packed(pieces), peer))
            for wait in waits:
                wait.wait()
            for piece, values in arrived:
                self._take(piece, values)

    def _packed(self, pieces: list[Piece]) -> torch.Tensor:
        rows = [self.buffer[piece.begin : piece.end] for piece in pieces]
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def _take(self, piece: Piece, values: torch.Tensor) -> None:
        mine, scratch = self.buffer[piece.begin : piece.end], self.scratch[piece.begin : piece.end]
        if not piece.reduce:
            mine.copy_(values)
        elif piece.fold is Fold.DIRECT:
            mine.add_(values)
        elif piece.fold is Fold.FIRST:
            scratch.copy_(values)
        else:
            scratch.add_(values)
            if piece.fold is Fold.LAST:
                torch.add(scratch, mine, out=mine)

    def check(self) -> None:
        """Raise SystemExit unless every required chunk holds what the collective promises, to the last bit."""
        what, ranks, chunks = collective(self.schedule.collective), self.schedule.ranks, self.schedule.chunks
        held = np.repeat(what.before(ranks, chunks), self.chunk, axis=1)
        expected = sum(self._input(rank) * held[rank] for rank in range(ranks))
        required = np.repeat(what.after(ranks, chunks)[self.rank], self.chunk)
        wrong = np.flatnonzero((self.buffer.numpy() != expected) & required)
        if len(wrong):
            raise SystemExit(f"{self.schedule.name}: rank {self.rank} has a wrong value at element {wrong[0]}")

    def _input(self, rank: int) -> np.ndarray:
        """Small whole numbers that differ by rank and place, so that sums are exact."""
        return ((rank + 1) * (np.arange(len(self.buffer)) % 251 + 1)).astype(np.float32)


def _parts(schedule: Schedule, rank: int, chunk: int) -> list[Part]:
    moved, ranks = messages(schedule), schedule.ranks
    parts = []
    for number in range(len(schedule.rounds)):
        rows = np.flatnonzero(moved.round == number)
        sends = _pieces(moved, rows[moved.src[rows] == rank], moved.dst, chunk)
        receives = _pieces(moved, rows[moved.dst[rows] == rank], moved.src, chunk)
        if sends or receives:
            order = sorted(sends, key=lambda peer: (peer - rank) % ranks)
            parts.append(Part([(peer, sends[peer]) for peer in order], sorted(receives.items())))
    return parts


def _pieces(moved: Messages, rows: np.ndarray, peers: np.ndarray, chunk: int) -> dict[int, list[Piece]]:
    found: dict[int, list[Piece]] = {}
    for row in rows.tolist():
        begin, count = int(moved.chunk[row]), int(moved.count[row])
        piece = Piece(begin * chunk, (begin + count) * chunk, bool(moved.reduce[row]), Fold(int(moved.fold[row])))
        found.setdefault(int(peers[row]), []).append(piece)
    return found
