"""Where chunks lie in the user's buffers, for a collective of a given length.

The buffer of a collective consists of blocks (:class:`~farandole.collectives.Blocks`), each of which is cut
into equally many chunks, as even as can be; chunks may be empty. A chunk begins on an element and, where
that makes no chunk noticeably longer, on a cache line.

A long buffer is worked off in *slices*, so that the rounds of one slice overlap those of another. Slice s
has the elements ``s * stride`` to ``(s + 1) * stride`` of every block, and each slice is cut into chunks
on its own. So a chunk of slice s lies ``s * stride`` elements after the same chunk of slice 0, and is
shorter than ``length`` only where its block ends: ``min(length, limit - s * stride)``, at least 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.collectives import Blocks, Collective
from farandole.errors import LengthError

Offsets = NDArray[np.int64]

CACHE_LINE = 64
_ALIGN_FROM = 64  # cache lines per chunk: below that, aligning would make chunks too uneven


def split(length: int, parts: int, grain: int = 1) -> Offsets:
    """Bounds of ``parts`` pieces of ``length`` elements, as even as can be: shape (parts + 1,).

    Bounds are multiples of ``grain`` where the pieces are long enough for that to cost nothing.

    >>> split(10, 4).tolist()
    [0, 3, 6, 8, 10]
    """
    if grain > 1 and length >= _ALIGN_FROM * parts * grain:
        return np.minimum(split(-(-length // grain), parts) * grain, length)
    part = np.arange(parts + 1, dtype=np.int64)
    return part * (length // parts) + np.minimum(part, length % parts)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The chunks of one call, in elements; all arrays have shape (chunks,) but ``counts``, shape (blocks,).

    ``counts`` are the lengths of the blocks. ``block`` and ``bound`` say where a chunk of slice 0 begins:
    in which block, how far into it. ``length`` and ``limit`` are as in the module's first lines.
    """

    collective: Collective
    ranks: int
    root: int
    counts: Offsets
    stride: int
    slices: int
    block: Offsets
    bound: Offsets
    length: Offsets
    limit: Offsets

    def input_offset(self, rank: int) -> Offsets:
        """Where each chunk of slice 0 lies in the input of ``rank``; -1 where it is not part of it."""
        return self._offset(self.collective.input, rank)

    def output_offset(self, rank: int) -> Offsets:
        """Where each chunk of slice 0 lies in the output of ``rank``; -1 where it is not part of it."""
        return self._offset(self.collective.output, rank)

    def input_length(self, rank: int) -> int:
        """How many elements the input of ``rank`` has."""
        return self._elements(self.collective.input, rank)

    def output_length(self, rank: int) -> int:
        """How many elements the output of ``rank`` has."""
        return self._elements(self.collective.output, rank)

    def _blocks_of(self, part: str, rank: int) -> NDArray[np.intp]:
        """The blocks in a rank's buffer, in the order in which they lie there."""
        every = np.arange(len(self.counts))
        if part == "all" or (part == "root" and rank == self.root):
            return every
        if part == "own":
            return every[rank : rank + 1]
        if part == "row":
            return every[rank * self.ranks : (rank + 1) * self.ranks]
        return every[rank :: self.ranks] if part == "column" else every[:0]

    def _elements(self, part: str, rank: int) -> int:
        return int(self.counts[self._blocks_of(part, rank)].sum())

    def _offset(self, part: str, rank: int) -> Offsets:
        blocks = self._blocks_of(part, rank)
        begin = np.full(len(self.counts), -1, np.int64)
        counts = self.counts[blocks]
        begin[blocks] = np.cumsum(counts) - counts
        start = begin[self.block]
        return np.where(start < 0, -1, start + self.bound)


def even_counts(collective: Collective, ranks: int, length: int) -> Offsets:
    """Block lengths when the whole buffer of ``length`` elements is shared out as evenly as can be."""
    if collective.blocks is Blocks.WHOLE:
        return np.array([length], np.int64)
    if collective.blocks is Blocks.PER_RANK:
        return np.diff(split(length, ranks))
    return np.tile(np.diff(split(length, ranks)), ranks)


def layout(
    collective: Collective,
    ranks: int,
    chunks: int,
    counts: Offsets,
    *,
    root: int = 0,
    itemsize: int = 1,
    longest_chunk: int | None = None,
) -> Layout:
    """Lay ``chunks`` chunks over blocks of ``counts`` elements of ``itemsize`` bytes.

    With ``longest_chunk`` (in elements) the buffer is cut into as many equal slices as are needed for no
    chunk to be longer. Raises LengthError for a number or a length of blocks that cannot be.
    """
    collective.check_chunks(ranks, chunks)
    counts = np.ascontiguousarray(counts, np.int64)
    blocks = collective.block_count(ranks)
    if counts.shape != (blocks,) or (counts < 0).any():
        raise LengthError(
            f"{collective.name} on {ranks} ranks takes {blocks} counts of 0 or more, not {counts.tolist()}",
            expected=blocks,
            got=counts.tolist(),
        )
    grain = max(1, CACHE_LINE // itemsize)
    per_block = chunks // blocks
    longest_block = int(counts.max(initial=0))
    stride, slices = _slices(longest_block, per_block, grain, longest_chunk)
    bounds = np.empty((blocks, per_block + 1), np.int64)
    for length in np.unique(counts):
        bounds[counts == length] = split(min(int(length), stride), per_block, grain)
    bound = bounds[:, :-1].ravel()
    block = np.repeat(np.arange(blocks), per_block)
    return Layout(
        collective=collective,
        ranks=ranks,
        root=root,
        counts=counts,
        stride=stride,
        slices=slices,
        block=block,
        bound=bound,
        length=np.diff(bounds, axis=1).ravel(),
        limit=counts[block] - bound,
    )


def _slices(length: int, parts: int, grain: int, longest_chunk: int | None) -> tuple[int, int]:
    """(stride, number of slices) for a block of ``length`` elements in ``parts`` chunks."""
    if longest_chunk is None or -(-length // parts) <= longest_chunk:
        return max(length, 1), 1
    unit = parts * grain
    most = max(longest_chunk // grain, 1) * unit
    slices = -(-length // most)
    stride = -(-length // (slices * unit)) * unit
    return stride, -(-length // stride)
