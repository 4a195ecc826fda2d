"""What each collective promises, and how chunks lie in the user's buffers.

A chunk is known by its number alone; which of them a rank holds before, which it must hold after, and
where they lie in its input and output, is the collective's business. There are three kinds:

- *whole*: the buffer is one piece, cut into any number of chunks (all_reduce, broadcast, reduce);
- *per rank*: one block per rank, block ``b`` belongs to rank ``b`` (reduce_scatter, all_gather, gather,
  scatter, barrier); a block is cut into ``chunks / ranks`` chunks;
- *per pair*: one block per (sender, receiver), block ``s * ranks + d`` (all_to_all).

What a rank holds is written as contributions: the set of ranks whose input has gone into a chunk. Before
the collective a rank that holds a chunk holds its own contribution; after it, a required chunk holds
either those of all ranks (the reducing collectives) or that of the chunk's origin.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UnknownNameError, UsageError

Masks = NDArray[np.bool_]


class Blocks(Enum):
    """How the chunks are grouped: see the module's first lines."""

    WHOLE = "whole"
    PER_RANK = "per rank"
    PER_PAIR = "per pair"


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective: its name, its kind of blocks, whether it reduces and whether it has a root.

    ``input`` and ``output`` say who has which part of the buffer before and after: ``all`` (every rank has
    every block), ``own`` (each rank its own block), ``root`` (the root has every block, the others none),
    ``row`` and ``column`` (of the square of pairs: what a rank sends, what it receives).
    """

    name: str
    blocks: Blocks
    input: str
    output: str
    reduces: bool = False
    rooted: bool = False
    moves_data: bool = True

    def block_count(self, ranks: int) -> int:
        """How many blocks a world of ``ranks`` has; the number of chunks is a multiple of it."""
        return {Blocks.WHOLE: 1, Blocks.PER_RANK: ranks, Blocks.PER_PAIR: ranks * ranks}[self.blocks]

    def check_chunks(self, ranks: int, chunks: int) -> None:
        """Raise UsageError unless ``chunks`` is a positive multiple of the number of blocks."""
        blocks = self.block_count(ranks)
        if chunks < 1 or chunks % blocks:
            raise UsageError(
                f"{self.name} on {ranks} ranks has {blocks} blocks, so the number of chunks must be a"
                f" multiple of {blocks}, not {chunks}",
                expected=blocks,
                got=chunks,
            )

    def before(self, ranks: int, chunks: int, root: int = 0) -> Masks:
        """Which chunks each rank holds at the start: bool, shape (ranks, chunks)."""
        return self._mask(self.input, ranks, chunks, root)

    def after(self, ranks: int, chunks: int, root: int = 0) -> Masks:
        """Which chunks each rank must hold at the end: bool, shape (ranks, chunks)."""
        return self._mask(self.output, ranks, chunks, root)

    def origin(self, ranks: int, chunks: int, root: int = 0) -> NDArray[np.int32]:
        """For a collective that does not reduce: the rank whose input each chunk is, shape (chunks,)."""
        block = np.arange(chunks) * self.block_count(ranks) // chunks
        if self.input == "root":
            return np.full(chunks, root, np.int32)
        return (block if self.blocks is Blocks.PER_RANK else block // ranks).astype(np.int32)

    def _mask(self, part: str, ranks: int, chunks: int, root: int) -> Masks:
        if part == "all":
            return np.ones((ranks, chunks), np.bool_)
        rank = np.arange(ranks)[:, None]
        block = np.arange(chunks) * self.block_count(ranks) // chunks
        if part == "root":
            return np.broadcast_to(rank == root, (ranks, chunks)).copy()
        if part == "own":
            return np.asarray(block == rank)
        return np.asarray((block // ranks if part == "row" else block % ranks) == rank)


COLLECTIVES: dict[str, Collective] = {
    collective.name: collective
    for collective in (
        Collective("all_reduce", Blocks.WHOLE, "all", "all", reduces=True),
        Collective("reduce_scatter", Blocks.PER_RANK, "all", "own", reduces=True),
        Collective("all_gather", Blocks.PER_RANK, "own", "all"),
        Collective("broadcast", Blocks.WHOLE, "root", "all", rooted=True),
        Collective("reduce", Blocks.WHOLE, "all", "root", reduces=True, rooted=True),
        Collective("gather", Blocks.PER_RANK, "own", "root", rooted=True),
        Collective("scatter", Blocks.PER_RANK, "root", "own", rooted=True),
        Collective("all_to_all", Blocks.PER_PAIR, "row", "column"),
        Collective("barrier", Blocks.PER_RANK, "own", "all", moves_data=False),
    )
}


def collective(name: str) -> Collective:
    """The collective of that name; UnknownNameError says which ones there are."""
    try:
        return COLLECTIVES[name]
    except KeyError:
        raise UnknownNameError("collective", name, COLLECTIVES) from None
