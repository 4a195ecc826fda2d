from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.collectives import COLLECTIVES
from farandole.errors import LengthError, UsageError
from farandole.layout import Layout, even_counts, layout, split


@given(st.integers(0, 10**6), st.integers(1, 70), st.sampled_from([1, 4, 16, 64]))
def test_a_split_covers_everything_as_evenly_as_its_grain_allows(length: int, parts: int, grain: int) -> None:
    bounds = split(length, parts, grain)
    sizes = np.diff(bounds)
    assert (bounds[0], bounds[-1], len(sizes)) == (0, length, parts)
    if length < 64 * parts * grain:
        assert sizes.max() - sizes.min() <= 1
    else:
        assert (bounds[1:-1] % grain == 0).all()
        assert sizes.max() <= (length / parts) * (1 + 1 / 32)


def _covered(where: Layout, offsets: np.ndarray, length: int) -> np.ndarray:
    """How often each element of a buffer is part of a chunk of any slice."""
    times = np.zeros(length, np.int64)
    for number in range(where.slices):
        moved = number * where.stride
        for chunk in np.flatnonzero(offsets >= 0):
            size = max(0, min(int(where.length[chunk]), int(where.limit[chunk]) - moved))
            times[offsets[chunk] + moved : offsets[chunk] + moved + size] += 1
    return times


@given(
    collective=st.sampled_from(sorted(COLLECTIVES)),
    ranks=st.integers(1, 6),
    per_block=st.integers(1, 4),
    length=st.integers(0, 3000),
    longest=st.none() | st.integers(16, 400),
    data=st.data(),
)
def test_the_chunks_of_all_slices_cover_every_buffer_once(
    collective: str, ranks: int, per_block: int, length: int, longest: int | None, data: st.DataObject
) -> None:
    what = COLLECTIVES[collective]
    blocks = what.block_count(ranks)
    uneven = st.lists(st.integers(0, 300), min_size=blocks, max_size=blocks)
    counts = np.array(data.draw(st.just(even_counts(what, ranks, length).tolist()) | uneven), np.int64)
    root = data.draw(st.integers(0, ranks - 1))
    where = layout(what, ranks, blocks * per_block, counts, root=root, itemsize=4, longest_chunk=longest)
    for rank in range(ranks):
        inputs = _covered(where, where.input_offset(rank), where.input_length(rank))
        outputs = _covered(where, where.output_offset(rank), where.output_length(rank))
        assert (inputs == 1).all()
        assert (outputs == 1).all()
    if longest is not None:
        assert where.length.max() <= max(longest, 16)


def test_offsets_beyond_32_bits_are_right() -> None:
    for length in (2**31 - 1, 2**31, 2**32 + 3):
        where = layout(COLLECTIVES["all_reduce"], 8, 8, np.array([length]), itemsize=4, longest_chunk=2**15)
        moved = (where.slices - 1) * where.stride
        last = int(where.input_offset(3)[7]) + moved
        assert 0 <= length - moved <= where.stride
        assert last < 2**40
        assert int(np.clip(where.limit - moved, 0, where.length).sum()) == length - moved
    table = np.full(16, 2**30)
    where = layout(COLLECTIVES["all_to_all"], 4, 16, table, itemsize=1)
    assert where.input_offset(1).max() == 3 * 2**30
    assert where.output_length(2) == 2**32


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(LengthError, match="takes 3 counts") as caught:
        layout(COLLECTIVES["all_gather"], 3, 3, np.array([1, 2]))
    assert caught.value.facts == {"expected": 3, "got": [1, 2]}
    with pytest.raises(UsageError, match="multiple of 3"):
        layout(COLLECTIVES["all_gather"], 3, 4, np.array([1, 2, 3]))
