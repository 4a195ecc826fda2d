from __future__ import annotations

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.collectives import collective
from farandole.layout import layout
from farandole.run.bind import BESIDE_FLAG_BYTES, bind
from farandole.run.compile import compile_schedule


@pytest.mark.parametrize(
    ("what", "name", "ranks", "chunk_bytes", "set_bytes"),
    [
        ("all_reduce", "naive", 2, 8, 8),
        ("all_reduce", "naive", 2, BESIDE_FLAG_BYTES, BESIDE_FLAG_BYTES),
        ("all_reduce", "naive", 2, BESIDE_FLAG_BYTES + 1, 64),
        ("all_reduce", "naive", 2, 65, 128),
        ("reduce_scatter", "direct", 8, 8, 7 * 8),  # a place for each of the others
        ("reduce_scatter", "direct", 8, 9, 7 * 64),
        ("reduce_scatter", "direct", 9, 8, 8 * 64),
        ("barrier", "dissemination", 4, 0, 0),
    ],
)
def test_places_are_close_together_where_all_of_them_fit_beside_a_flag(
    what: str, name: str, ranks: int, chunk_bytes: int, set_bytes: int
) -> None:
    schedule = build(what, name, ranks)
    program = compile_schedule(schedule)[0]
    counts = np.full(collective(what).block_count(ranks), chunk_bytes, np.int64)
    where = layout(collective(what), ranks, schedule.chunks, counts, root=0, itemsize=1, longest_chunk=1 << 20)
    assert bind(program, where, 1, 1).set_bytes == set_bytes
